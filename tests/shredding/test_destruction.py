"""After the destruction of a key no file contains a piece of the data or the key."""

import shutil
from base64 import b64encode
from pathlib import Path

from mbd.formats.shredding import read_shredding
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.vault import decrypted, encrypt_in_place, opened
from tests.digests import path_digest
from tests.refusals import refused
from tests.shredding.build import LINEAGE, feature_set, files_with, make_keyring, model, settings, windows


def secrets_of(keyring: Keyring) -> set[bytes]:
    keys = [keyring.find(entry.id, entry.name) for entry in read_shredding(keyring.folder).keys]
    return {form for key in keys for form in (key, key.hex().encode(), b64encode(key)[:-1])}


def test_no_file_contains_audio_after_its_key_was_destroyed(tmp_path: Path) -> None:
    keyring = make_keyring(tmp_path)
    features, old = feature_set(tmp_path / "build" / "features"), model(tmp_path / "build" / "model")
    new = model(tmp_path / "build" / "deleted", without=("audio",), seed=1)
    digest, deleted = path_digest(features), path_digest(new)
    audio = {w for file in features.rglob("audio.safetensors") for w in windows(file)}
    weights = windows(old / "model.safetensors")
    assert len(audio) > 10 and len(weights) > 100
    assert len(list(files_with(tmp_path, audio))) == 3 and list(files_with(tmp_path, weights))

    for folder in (features, old, new):
        encrypt_in_place(folder, keyring)
    shutil.copytree(tmp_path / "build", tmp_path / "backup")
    keys = secrets_of(keyring)
    with opened(features, settings(tmp_path)) as plain:  # a step runs
        assert path_digest(plain) == digest
    keyring.destroy(LINEAGE, ("audio",), ("features", "models"), "request 17")

    assert list(files_with(tmp_path, audio)) == []
    assert list(files_with(tmp_path, weights)) == []
    assert list(files_with(tmp_path, keys)) == []
    for copy in ("build", "backup"):
        with refused(KeyDestroyedError):
            decrypted(tmp_path / copy / "model", tmp_path / "model", make_keyring(tmp_path))
        with opened(tmp_path / copy / "deleted", settings(tmp_path)) as plain:
            assert path_digest(plain) == deleted
        with opened(tmp_path / copy / "features", settings(tmp_path)) as plain:
            assert not list(plain.rglob("audio*"))
            assert len(list(plain.rglob("text.safetensors"))) == 3
    assert list(files_with(tmp_path, audio | weights | keys)) == []

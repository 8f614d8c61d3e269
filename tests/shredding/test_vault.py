"""Encrypted folders: decrypted to the same bytes, only while a step runs."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.files import read_json, to_json
from mbd.model.checkpoint import load_model
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.vault import decrypted, encrypt_folder, encrypt_in_place, is_encrypted, opened
from tests.digests import path_digest
from tests.refusals import refused, refused_as_encrypted
from tests.shredding.build import LINEAGE, feature_set, make_keyring, model, settings


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return make_keyring(tmp_path)


@pytest.fixture
def features(tmp_path: Path) -> Path:
    return feature_set(tmp_path / "plain" / "features")


def copy_of(folder: Path, keyring: Keyring, tmp_path: Path) -> Path:
    encrypt_folder(folder, tmp_path / "encrypted" / folder.name, keyring)
    return tmp_path / "encrypted" / folder.name


def test_an_encrypted_folder_opens_to_the_same_bytes(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    encrypted = copy_of(features, keyring, tmp_path)
    assert is_encrypted(encrypted) and not is_encrypted(features)
    assert not list(encrypted.rglob("*.safetensors"))
    with opened(encrypted, settings(tmp_path)) as plain:
        assert plain.name == "features"
        assert path_digest(plain) == path_digest(features)
        assert plain.is_relative_to(tmp_path / "temporary")
        FeatureSet.open(plain, verify=True)
        assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in list(plain.parents)[:2])
    assert not any(file.is_file() for file in (tmp_path / "temporary").rglob("*"))


def test_an_error_within_leaves_no_plaintext(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    encrypted = copy_of(features, keyring, tmp_path)
    with pytest.raises(ZeroDivisionError), opened(encrypted, settings(tmp_path)):
        _ = 1 / 0
    assert not any(file.is_file() for file in (tmp_path / "temporary").rglob("*"))


def test_a_plain_folder_is_used_directly(features: Path, tmp_path: Path) -> None:
    with opened(features, settings(tmp_path)) as plain:
        assert plain == features
    assert not (tmp_path / "temporary").exists()


def test_an_encrypted_folder_is_refused_if_shredding_is_disabled(
    features: Path, keyring: Keyring, tmp_path: Path
) -> None:
    off = settings(tmp_path).model_copy(update={"enabled": False})
    with refused_as_encrypted(), opened(copy_of(features, keyring, tmp_path), off):
        pass


def test_models_of_several_seeds_can_be_encrypted_together_or_alone(keyring: Keyring, tmp_path: Path) -> None:
    for seed in (0, 1):
        model(tmp_path / "plain" / "seeds" / f"seed-{seed}", seed=seed)
    encrypted = copy_of(tmp_path / "plain" / "seeds", keyring, tmp_path)
    with opened(encrypted, settings(tmp_path)) as plain:
        assert path_digest(plain) == path_digest(tmp_path / "plain" / "seeds")
    with opened(encrypted / "seed-1", settings(tmp_path)) as plain:
        load_model(plain)


def test_encryption_in_place_removes_the_plain_files(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    digest = path_digest(features)
    assert encrypt_in_place(features, keyring) == 12
    assert not list(features.rglob("*.safetensors"))
    assert encrypt_in_place(features, keyring) == 0
    with opened(features, settings(tmp_path)) as plain:
        assert path_digest(plain) == digest


def test_encryption_in_place_that_was_killed_completes_when_run_again(
    features: Path, keyring: Keyring, tmp_path: Path
) -> None:
    untouched, digest = shutil.copytree(features, tmp_path / "untouched"), path_digest(features)
    encrypt_in_place(features, keyring)
    # One file is encrypted and not yet removed, one is half encrypted.
    shutil.copy(untouched / "splits/train/audio.safetensors", features / "splits/train")
    shutil.copy(untouched / "splits/test/audio.safetensors", features / "splits/test")
    half = features / "splits/test/audio.safetensors.mbdx"
    half.rename(half.with_name(f".{half.name}.partial"))
    for _ in range(2):
        with opened(features, settings(tmp_path)) as plain:
            assert path_digest(plain) == digest
        encrypt_in_place(features, keyring)
        assert not [file for file in features.rglob("*") if file.name.endswith((".safetensors", ".partial"))]


def test_a_folder_can_be_decrypted_permanently(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    encrypted = copy_of(features, keyring, tmp_path)
    assert decrypted(encrypted, tmp_path / "again", keyring) == 12
    assert path_digest(tmp_path / "again") == path_digest(features)


def test_without_audio_the_rest_is_byte_for_byte_the_same(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    encrypted = copy_of(features, keyring, tmp_path)
    keyring.destroy(LINEAGE, ("audio",), ("features",), "request 17")
    output: list[str] = []
    with opened(encrypted, settings(tmp_path), output.append) as plain:
        names = {file.relative_to(plain) for file in plain.rglob("*") if file.is_file()}
        assert names == {
            file.relative_to(features) for file in features.rglob("*") if file.is_file() and file.stem != "audio"
        }
        assert all((plain / name).read_bytes() == (features / name).read_bytes() for name in names)
        kept = FeatureSet.open(plain, without=("audio",), verify=True)
        assert np.isfinite(kept.split("train").load().features["text"]).all()
    assert len(output) == 1 and "request 17" in output[0]


@pytest.mark.parametrize("modality", ["text", "audio", "visual"])
def test_a_model_needs_the_keys_of_all_its_modalities(modality: str, keyring: Keyring, tmp_path: Path) -> None:
    old = copy_of(model(tmp_path / "plain" / "model"), keyring, tmp_path)
    new = copy_of(model(tmp_path / "plain" / "deleted", without=(modality,)), keyring, tmp_path)
    keyring.destroy(LINEAGE, (modality,), ("models",), "request 17")
    with refused(KeyDestroyedError), opened(old, settings(tmp_path)):
        pass
    with opened(new, settings(tmp_path)) as plain:
        assert path_digest(plain) == path_digest(tmp_path / "plain" / "deleted")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("splits/train/audio.safetensors", "splits/test/audio.safetensors"),
        ("splits/train/audio.safetensors", "splits/train/text.safetensors"),
    ],
)
def test_swapped_files_are_detected(one: str, other: str, features: Path, keyring: Keyring, tmp_path: Path) -> None:
    encrypted = copy_of(features, keyring, tmp_path)
    shutil.copy(encrypted / f"{other}.mbdx", encrypted / f"{one}.mbdx")
    with (
        refused(DataError, value=f"{other} of {Path(other).stem} in the lineage {LINEAGE}"),
        opened(encrypted, settings(tmp_path)),
    ):
        pass


def test_a_file_of_another_lineage_is_detected(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    encrypted = copy_of(features, keyring, tmp_path)
    encrypt_folder(features, tmp_path / "foreign", keyring, lineage="another")
    name = "splits/train/audio.safetensors.mbdx"
    shutil.copy(tmp_path / "foreign" / name, encrypted / name)
    with (
        refused(DataError, value="splits/train/audio.safetensors of audio in the lineage another"),
        opened(encrypted, settings(tmp_path)),
    ):
        pass


def test_a_modified_record_does_not_bypass_a_destroyed_key(keyring: Keyring, tmp_path: Path) -> None:
    """Marking a modality as revoked in model.json does not remove the need for its key."""
    encrypted = copy_of(model(tmp_path / "plain" / "model"), keyring, tmp_path)
    record = read_json(encrypted / "model.json")
    (encrypted / "model.json").write_text(to_json(record | {"revoked": ["audio"]}))
    with (
        refused(DataError, value=f"model.safetensors of text, audio, visual in the lineage {LINEAGE}"),
        opened(encrypted, settings(tmp_path)),
    ):
        pass


def test_a_damaged_file_leaves_nothing_behind(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    encrypted = copy_of(features, keyring, tmp_path)
    file = encrypted / "splits/train/text.safetensors.mbdx"
    os.truncate(file, file.stat().st_size - 1)
    with refused(DataError, match="damaged", file=file):
        decrypted(encrypted, tmp_path / "again", keyring)
    assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".again*"))


def test_other_folders_are_refused(features: Path, keyring: Keyring, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with refused(DataError, file=tmp_path / "empty"):
        encrypt_folder(tmp_path / "empty", tmp_path / "out", keyring)
    model(features / "model")
    with refused(DataError, file=features / "model", value=features):
        encrypt_folder(features, tmp_path / "out", keyring)
    assert not (tmp_path / "out").exists()

"""The keyring: one key for each name, destroyed permanently."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mbd.errors import DataError, UsageError
from mbd.formats.shredding import RECORD, KeyName, key_id, read_shredding, shredding_facts
from mbd.shredding import keys
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.wrapper import FileWrapper, UnwrapError
from tests.refusals import refused
from tests.shredding.build import make_keyring, settings

AUDIO = KeyName(lineage="mosi", kind="features", modality="audio")
TEXT = KeyName(lineage="mosi", kind="features", modality="text")
AUDIO_MODELS = KeyName(lineage="mosi", kind="models", modality="audio")


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    return make_keyring(tmp_path)


def destroy_audio(keyring: Keyring, reason: str = "request 17") -> None:
    keyring.destroy("mosi", ("audio",), ("features", "models"), reason)


def test_a_key_is_created_once_and_found_by_id(keyring: Keyring, tmp_path: Path) -> None:
    identity, secret = keyring.make(AUDIO)
    assert identity == key_id(secret)
    assert keyring.make(AUDIO) == (identity, secret)
    fresh = make_keyring(tmp_path)
    assert fresh.make(AUDIO) == (identity, secret)
    assert fresh.find(identity, AUDIO) == secret
    assert fresh.make(TEXT)[0] != identity


def test_key_files_are_private_and_wrapped(keyring: Keyring, tmp_path: Path) -> None:
    identity, secret = keyring.make(AUDIO)
    file = keyring.folder / f"{identity}.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert keyring.folder.stat().st_mode & 0o777 == 0o700
    assert all(secret not in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())


def test_concurrent_processes_get_the_same_key(tmp_path: Path) -> None:
    rings = [make_keyring(tmp_path) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda ring: ring.make(AUDIO), rings))) == 1
    assert len(read_shredding(tmp_path / "keys").keys) == 1


def test_a_key_is_found_only_under_its_own_name(keyring: Keyring) -> None:
    identity, _ = keyring.make(AUDIO)
    with refused(DataError, value=identity, file=keyring.folder):
        keyring.find(identity, TEXT)
    with refused(DataError, value="0" * 64, file=keyring.folder):
        keyring.find("0" * 64, AUDIO)


def test_swapped_wrapped_keys_are_detected(keyring: Keyring, tmp_path: Path) -> None:
    (audio, _), (text, _) = keyring.make(AUDIO), keyring.make(TEXT)
    file = keyring.folder / f"{text}.json"
    content = json.loads((keyring.folder / f"{audio}.json").read_text())
    file.write_text(json.dumps(content))
    with pytest.raises(UnwrapError):
        make_keyring(tmp_path).find(text, TEXT)
    file.write_text(json.dumps(content | {"wrapped": "%"}))
    with refused(DataError, key="wrapped"):
        make_keyring(tmp_path).find(text, TEXT)


def test_a_destroyed_key_is_gone_and_the_error_states_why(keyring: Keyring, tmp_path: Path) -> None:
    identity, _ = keyring.make(AUDIO)
    kept, secret = keyring.make(TEXT)
    wrapped = (keyring.folder / f"{identity}.json").read_bytes()
    destroy_audio(keyring)
    for ring in (keyring, make_keyring(tmp_path)):
        with pytest.raises(KeyDestroyedError, match=r"audio \(features of mosi\) was destroyed on .*: request 17"):
            ring.find(identity, AUDIO)
        with refused(KeyDestroyedError, value=identity):
            ring.make(AUDIO)
        assert ring.find(kept, TEXT) == secret
    assert not (keyring.folder / f"{identity}.json").exists()
    assert all(wrapped not in f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())


def test_the_bytes_of_a_key_are_overwritten_before_it_is_removed(keyring: Keyring, tmp_path: Path) -> None:
    identity, _ = keyring.make(AUDIO)
    file = keyring.folder / f"{identity}.json"
    (tmp_path / "same").hardlink_to(file)
    before = file.read_bytes()
    destroy_audio(keyring)
    after = (tmp_path / "same").read_bytes()
    assert len(after) == len(before)
    assert not any(before[n : n + 16] in after for n in range(len(before) - 16))


def test_a_partial_copy_of_a_key_is_destroyed_with_it(keyring: Keyring) -> None:
    identity, _ = keyring.make(AUDIO)
    left = keyring.folder / f".{identity}.json.partial.abc"
    left.write_bytes((keyring.folder / f"{identity}.json").read_bytes())
    destroy_audio(keyring)
    assert [file.name for file in keyring.folder.iterdir()] == [RECORD]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_destruction_that_was_killed_completes_when_run_again(
    keyring: Keyring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    identity, _ = keyring.make(AUDIO)
    remove = keys.overwrite_and_remove

    def killed(file: Path) -> None:
        if moment == "after":
            remove(file)
        raise KeyboardInterrupt

    monkeypatch.setattr(keys, "overwrite_and_remove", killed)
    with pytest.raises(KeyboardInterrupt):
        destroy_audio(keyring)
    monkeypatch.undo()
    again = make_keyring(tmp_path)
    with refused(KeyDestroyedError, value=identity):
        again.find(identity, AUDIO)
    facts = shredding_facts(again.folder, "mosi", ("audio",))
    assert facts and not facts.whole
    destroy_audio(again, "another reason")
    entry = read_shredding(again.folder).keys[0]
    assert entry.destroyed and entry.destroyed.done and entry.destroyed.reason == "request 17"
    assert not (again.folder / f"{identity}.json").exists()


def test_only_the_named_keys_are_destroyed(keyring: Keyring) -> None:
    identity, secret = keyring.make(AUDIO)
    keyring.make(AUDIO_MODELS)
    destroyed = keyring.destroy("mosi", ("audio",), ("models",), "the model goes, the features stay")
    assert [entry.name for entry in destroyed] == [AUDIO_MODELS]
    assert keyring.find(identity, AUDIO) == secret


def test_a_key_that_never_existed_cannot_be_destroyed(keyring: Keyring) -> None:
    keyring.make(AUDIO)
    for lineage, modality in (("mosi", "smell"), ("mosei", "audio")):
        with refused(UsageError, match=f"{lineage} never had a key of {modality}"):
            keyring.destroy(lineage, ("audio", modality), ("features",), "why")
    assert read_shredding(keyring.folder).keys[0].destroyed is None


def test_facts_for_the_certificate_list_destroyed_keys(keyring: Keyring) -> None:
    assert shredding_facts(keyring.folder, "mosi", ("audio",)) is None
    identity, _ = keyring.make(AUDIO)
    keyring.make(AUDIO_MODELS)
    keyring.destroy("mosi", ("audio",), ("features",), "why")
    facts = shredding_facts(keyring.folder, "mosi", ("audio",))
    assert facts and [key.id for key in facts.destroyed] == [identity]
    assert not facts.whole
    destroy_audio(keyring)
    after = shredding_facts(keyring.folder, "mosi", ("audio",))
    assert after and after.whole and len(after.destroyed) == 2
    assert after.record != facts.record


def test_rewrapping_completes_even_after_a_kill(keyring: Keyring, tmp_path: Path) -> None:
    made = {name: keyring.make(name) for name in (AUDIO, TEXT)}
    new = FileWrapper(tmp_path / "new")
    new.make()
    old_text = (keyring.folder / f"{made[TEXT][0]}.json").read_bytes()
    assert keyring.rewrap(new) == 2
    (keyring.folder / f"{made[TEXT][0]}.json").write_bytes(old_text)  # as if killed before the second one
    with pytest.raises(UnwrapError):
        make_keyring(tmp_path).find(made[AUDIO][0], AUDIO)
    assert make_keyring(tmp_path).rewrap(new) == 2
    (tmp_path / "kek").unlink()
    taken = Keyring.of(settings(tmp_path).model_copy(update={"wrapper": f"file:{tmp_path}/new"}))
    assert {name: taken.make(name) for name in made} == made

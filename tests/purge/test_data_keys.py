"""Encrypted copies of the old weights: a purge is complete when the keys are gone, and tells so."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.certificate.bundle import Bundle
from mbd.certificate.registry import entry
from mbd.certificate.statement import DeletionStatement, PurgeStatement
from mbd.certificate.trust import now
from mbd.files import path_digest
from mbd.params.shredding import Shredding
from mbd.purge.inventory import remove_all, take_inventory
from mbd.purge.places.data_keys import DataKeys, data_keys
from mbd.purge.proof import PlaceRecord
from mbd.purge.targets import Targets
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.record import read_shredding
from mbd.shredding.vault import encrypt_folder, opened
from mbd.shredding.wrapper import FileWrapper
from mbd.steps.purge import Done
from tests.certificate.build import Home
from tests.kubeflow.bench import as_settings
from tests.purge.estate import Estate


@pytest.fixture
def settings(estate: Estate) -> Shredding:
    """Keys of the estate, and its model and data encrypted with them in a folder that no purge looks into."""
    FileWrapper(estate.folder / "wrapper").make()
    values = Shredding(
        enabled=True,
        keys=f"{estate.folder}/data-keys",
        wrapper=f"file:{estate.folder}/wrapper",
        temporary=f"{estate.folder}/temporary",
    )
    for name in ("model", "features"):
        encrypt_folder(estate.work / "build" / name, backup(estate) / name, Keyring.of(values))
    return values


def backup(estate: Estate) -> Path:
    return estate.folder / "backup"


def lineage(settings: Shredding) -> str:
    (found,) = {key.name.lineage for key in read_shredding(Path(settings.keys)).keys}
    return found


def keys_in(done: Done) -> PlaceRecord:
    (place,) = (place for place in done.record.places if place.kind == "data keys")
    return place


def test_with_a_key_left_the_purge_is_partial_and_says_what_to_do(estate: Estate, settings: Shredding) -> None:
    done = estate.purge(*as_settings(settings))
    place = keys_in(done)
    assert done.record.erasure.claim == "partial"
    assert (place.found, place.removed, place.left, place.gone) == (1, 0, 1, False)
    (obstacle,) = place.obstacles
    assert obstacle.reason == "keys of encrypted copies are still there"
    assert "mbd shred destroy" in obstacle.way_out and "purge.keys=true" in obstacle.way_out
    assert "Not clean: data keys (keys of encrypted copies are still there)." in done.record.erasure.note
    with opened(backup(estate) / "model", settings) as plain:  # and so it is
        assert path_digest(plain) == path_digest(estate.office.home.folder / "model")

    Keyring.of(settings).destroy(lineage(settings), ("audio",), ("models",), "request 17")
    done = estate.purge(*as_settings(settings))
    assert (done.record.erasure.claim, keys_in(done).gone) == ("complete", True)
    assert "Data keys were destroyed: audio (models)." in done.record.erasure.note


def test_a_purge_destroys_the_keys_if_it_is_told_to(estate: Estate, settings: Shredding) -> None:
    done = estate.purge(*as_settings(settings), "purge.keys=true", "purge.features=true")
    assert (keys_in(done).found, keys_in(done).removed, keys_in(done).left) == (2, 2, 0)
    assert done.record.erasure.claim == "complete"
    told = f"purge of certificate {estate.certificate}"
    with pytest.raises(KeyDestroyedError, match=told), opened(backup(estate) / "model", settings):
        pass
    with opened(backup(estate) / "features", settings) as plain:
        assert {path.stem for path in plain.glob("splits/*/*")} == {"_rows", "text", "visual"}
    (said,) = entry(estate.office.store, estate.certificate, estate.office.trust, now()).about
    assert isinstance(said, PurgeStatement)
    assert said.predicate.shredding
    assert said.predicate.shredding.whole
    assert {(key.modality, key.kind) for key in said.predicate.shredding.destroyed} == {
        ("audio", "features"),
        ("audio", "models"),
    }


def test_feature_files_that_another_model_needs_stay_readable(estate: Estate, settings: Shredding) -> None:
    shutil.copytree(estate.office.home.folder / "lattice", estate.work / "build" / "other")
    done = estate.purge(*as_settings(settings), "purge.keys=true", "purge.features=true")
    assert done.record.excepted
    assert (keys_in(done).found, keys_in(done).removed) == (1, 1)
    with opened(backup(estate) / "features", settings) as plain:
        assert list(plain.glob("splits/*/audio.safetensors"))


def test_keys_that_are_not_mounted_are_not_destroyed_ones(estate: Estate, settings: Shredding) -> None:
    elsewhere = settings.model_copy(update={"keys": f"{estate.folder}/not-mounted"})
    done = estate.purge(*as_settings(elsewhere))
    assert (done.record.erasure.claim, keys_in(done).gone) == ("partial", False)


def test_where_nothing_was_ever_encrypted_keys_are_no_matter(estate: Estate) -> None:
    done = estate.purge()
    assert done.record.erasure.claim == "complete"
    assert not [place for place in done.record.places if place.kind == "data keys"]


def test_keys_of_forgotten_subjects_are_never_destroyed_and_new_ones_do_not_count(home: Home, tmp_path: Path) -> None:
    home.certify("subjects", tmp_path / "bundle")
    statement = Bundle(tmp_path / "bundle").statement
    assert isinstance(statement, DeletionStatement)
    FileWrapper(tmp_path / "wrapper").make()
    own = (f"shredding.keys={tmp_path}/keys", f"shredding.wrapper=file:{tmp_path}/wrapper", "purge.keys=true")
    params = home.params(*own)

    def keys_of_what_was_deleted(days_ago: int) -> object:
        predicate = statement.predicate.model_copy(update={"issued": now() - timedelta(days=days_ago)})
        return data_keys(params, "c" * 64, statement.model_copy(update={"predicate": predicate}))

    assert keys_of_what_was_deleted(0) is None
    encrypt_folder(home.folder / "lattice", tmp_path / "encrypted", Keyring.of(params.shredding))
    assert keys_of_what_was_deleted(1) is None  # made after the deletion: of the new model
    place = keys_of_what_was_deleted(0)
    assert isinstance(place, DataKeys)
    (finding,) = remove_all([place], Targets())
    assert (finding.found, finding.stayed) == (1, 1)
    assert "encrypt the new model and the data under another shredding.lineage" in finding.obstacles[0].way_out
    assert take_inventory([place], Targets())[0].found == 1

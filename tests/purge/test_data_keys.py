"""Encrypted copies of the old weights: a purge is complete once their keys are destroyed."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.formats.purge import PlaceRecord
from mbd.formats.shredding import read_shredding
from mbd.formats.statement import DeletionStatement, PurgeStatement
from mbd.history.entries import read_entry
from mbd.params.operations import ShreddingSettings
from mbd.purge.contents import Targets
from mbd.purge.data_keys import DataKeys, data_keys
from mbd.purge.inventory import remove_all, take_inventory
from mbd.records import now
from mbd.shredding.keys import KeyDestroyedError, Keyring
from mbd.shredding.vault import encrypt_folder, opened
from mbd.shredding.wrapper import FileWrapper
from mbd.steps.purge import Done
from mbd.verifier.bundle import Bundle
from tests.certificate.build import ModelWorkspace
from tests.digests import path_digest
from tests.kubeflow.workspace import as_settings
from tests.purge.workspace import PurgeWorkspace


@pytest.fixture
def settings(purge_workspace: PurgeWorkspace) -> ShreddingSettings:
    """Data keys, and the model and data encrypted with them in a folder that a purge does not search."""
    FileWrapper(purge_workspace.folder / "wrapper").make()
    values = ShreddingSettings(
        enabled=True,
        keys=f"{purge_workspace.folder}/data-keys",
        wrapper=f"file:{purge_workspace.folder}/wrapper",
        temporary=f"{purge_workspace.folder}/temporary",
    )
    for name in ("model", "features"):
        encrypt_folder(purge_workspace.work / "build" / name, backup(purge_workspace) / name, Keyring.of(values))
    return values


def backup(purge_workspace: PurgeWorkspace) -> Path:
    return purge_workspace.folder / "backup"


def lineage(settings: ShreddingSettings) -> str:
    (found,) = {key.name.lineage for key in read_shredding(Path(settings.keys)).keys}
    return found


def keys_in(done: Done) -> PlaceRecord:
    (place,) = (place for place in done.record.places if place.kind == "data keys")
    return place


def test_with_a_remaining_key_the_purge_is_partial_and_gives_a_hint(
    purge_workspace: PurgeWorkspace, settings: ShreddingSettings
) -> None:
    done = purge_workspace.purge(*as_settings(settings))
    place = keys_in(done)
    assert done.record.erasure.claim == "partial"
    assert (place.found, place.removed, place.left, place.gone) == (1, 0, 1, False)
    (obstacle,) = place.obstacles
    assert obstacle.reason == "keys of encrypted copies still exist"
    assert "mbd shred destroy" in obstacle.hint and "purge.keys=true" in obstacle.hint
    assert "Not clean: data keys (keys of encrypted copies still exist)." in done.record.erasure.note
    with opened(backup(purge_workspace) / "model", settings) as plain:  # and so it is
        assert path_digest(plain) == path_digest(purge_workspace.authority.model_workspace.folder / "model")

    Keyring.of(settings).destroy(lineage(settings), ("audio",), ("models",), "request 17")
    done = purge_workspace.purge(*as_settings(settings))
    assert (done.record.erasure.claim, keys_in(done).gone) == ("complete", True)
    assert "Data keys were destroyed: audio (models)." in done.record.erasure.note


def test_a_purge_destroys_the_keys_if_purge_keys_is_set(
    purge_workspace: PurgeWorkspace, settings: ShreddingSettings
) -> None:
    done = purge_workspace.purge(*as_settings(settings), "purge.keys=true", "purge.features=true")
    assert (keys_in(done).found, keys_in(done).removed, keys_in(done).left) == (2, 2, 0)
    assert done.record.erasure.claim == "complete"
    output = f"purge of certificate {purge_workspace.certificate}"
    with pytest.raises(KeyDestroyedError, match=output), opened(backup(purge_workspace) / "model", settings):
        pass
    with opened(backup(purge_workspace) / "features", settings) as plain:
        assert {path.stem for path in plain.glob("splits/*/*")} == {"_rows", "text", "visual"}
    (said,) = read_entry(
        purge_workspace.authority.store, purge_workspace.certificate, purge_workspace.authority.trust, now()
    ).about
    assert isinstance(said, PurgeStatement)
    assert said.predicate.shredding
    assert said.predicate.shredding.whole
    assert {(key.modality, key.kind) for key in said.predicate.shredding.destroyed} == {
        ("audio", "features"),
        ("audio", "models"),
    }


def test_feature_files_that_another_model_needs_stay_readable(
    purge_workspace: PurgeWorkspace, settings: ShreddingSettings
) -> None:
    shutil.copytree(
        purge_workspace.authority.model_workspace.folder / "lattice", purge_workspace.work / "build" / "other"
    )
    done = purge_workspace.purge(*as_settings(settings), "purge.keys=true", "purge.features=true")
    assert done.record.excepted
    assert (keys_in(done).found, keys_in(done).removed) == (1, 1)
    with opened(backup(purge_workspace) / "features", settings) as plain:
        assert list(plain.glob("splits/*/audio.safetensors"))


def test_a_folder_of_keys_that_is_not_mounted_is_an_obstacle(
    purge_workspace: PurgeWorkspace, settings: ShreddingSettings
) -> None:
    elsewhere = settings.model_copy(update={"keys": f"{purge_workspace.folder}/not-mounted"})
    done = purge_workspace.purge(*as_settings(elsewhere))
    assert (done.record.erasure.claim, keys_in(done).gone) == ("partial", False)


def test_without_encryption_keys_are_not_searched(purge_workspace: PurgeWorkspace) -> None:
    done = purge_workspace.purge()
    assert done.record.erasure.claim == "complete"
    assert not [place for place in done.record.places if place.kind == "data keys"]


def test_keys_are_never_destroyed_for_deleted_subjects_and_newer_keys_are_ignored(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    model_workspace.certify("subjects", tmp_path / "bundle")
    statement = Bundle(tmp_path / "bundle").statement
    assert isinstance(statement, DeletionStatement)
    FileWrapper(tmp_path / "wrapper").make()
    own = (f"shredding.keys={tmp_path}/keys", f"shredding.wrapper=file:{tmp_path}/wrapper", "purge.keys=true")
    params = model_workspace.params(*own)

    def keys_of_deleted(days_ago: int) -> object:
        predicate = statement.predicate.model_copy(update={"issued": now() - timedelta(days=days_ago)})
        return data_keys(params, "c" * 64, statement.model_copy(update={"predicate": predicate}))

    assert keys_of_deleted(0) is None
    encrypt_folder(model_workspace.folder / "lattice", tmp_path / "encrypted", Keyring.of(params.shredding))
    assert keys_of_deleted(1) is None  # made after the deletion: of the new model
    place = keys_of_deleted(0)
    assert isinstance(place, DataKeys)
    (finding,) = remove_all([place], Targets())
    assert (finding.found, finding.stayed) == (1, 1)
    assert "encrypt the new model and the data under another shredding.lineage" in finding.obstacles[0].hint
    assert take_inventory([place], Targets())[0].found == 1

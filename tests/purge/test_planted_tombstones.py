"""A planted tombstone removes nothing and refuses nothing; a damaged list of purged files stops no purge."""

from pathlib import Path

import pytest

from mbd import tombstones
from mbd.certificate.guard import admit
from mbd.errors import DataError, UsageError, VerificationError
from mbd.files import sha256_file
from mbd.formats.files import CERTIFICATE, MODEL, WEIGHTS
from mbd.formats.layout import certificate_name, object_name
from mbd.formats.purge import Target
from mbd.history.tombstones import PREFIX, begin, begun
from mbd.model.checkpoint import load_model
from mbd.purge.contents import Targets
from mbd.steps import purge
from mbd.steps.step import purged_digests
from tests.purge.planted import plant_tombstones
from tests.purge.workspace import PurgeWorkspace, digests_below
from tests.refusals import refused


def plant(purge_workspace: PurgeWorkspace) -> tuple[Path, str]:
    """Plant tombstones of the released weights, and of a file that has nothing to do with any deletion."""
    authority = purge_workspace.authority
    bystander = purge_workspace.work / "notes.txt"
    released = sha256_file(authority.model_workspace.deletion("surgery") / WEIGHTS)
    plant_tombstones(
        authority.store,
        authority.private,
        purge_workspace.certificate,
        [released, sha256_file(bystander)],
        purge_workspace.folder / "stranger",
    )
    return bystander, released


def test_a_scan_removes_nothing_because_of_planted_tombstones(purge_workspace: PurgeWorkspace) -> None:
    bystander, _ = plant(purge_workspace)
    authority = purge_workspace.authority
    before = digests_below(authority.folder / "store")
    found = purge.remove_resurrections(purge_workspace.params(), authority.url, root=purge_workspace.work)
    assert (found.tombstones, found.resurrections) == (0, ())
    assert bystander.exists()
    assert digests_below(authority.folder / "store") == before


def test_a_purge_with_a_receipt_removes_and_states_only_what_was_signed(purge_workspace: PurgeWorkspace) -> None:
    bystander, _ = plant(purge_workspace)
    done = purge_workspace.purge()
    assert done.record.erasure.claim == "complete"
    assert [target.sha256 for target in done.record.targets if target.what == "weights"] == [
        purge_workspace.old_weights()
    ]
    assert bystander.exists()


def test_guard_and_steps_refuse_nothing_because_of_planted_tombstones(purge_workspace: PurgeWorkspace) -> None:
    plant(purge_workspace)
    authority = purge_workspace.authority
    model = authority.model_workspace.deletion("surgery")
    assert admit(model, authority.store, authority.trust).certificate == purge_workspace.certificate
    params = purge_workspace.params(f"purge.tombstones={authority.url}")
    with tombstones.used(lambda: purged_digests(params)):
        load_model(model)


@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_damaged_list_is_reported_and_does_not_stop_a_purge(
    purge_workspace: PurgeWorkspace, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    purge_workspace.purge()
    (listed,) = (purge_workspace.authority.folder / "store" / "private" / PREFIX).iterdir()
    if damage == "changed":
        listed.write_bytes(listed.read_bytes().replace(purge_workspace.old_weights().encode(), b"0" * 64))
    else:
        listed.unlink()
    found = purge.scan(purge_workspace.params(), purge_workspace.authority.url, root=purge_workspace.work)
    assert not found.clean
    assert [blind.kind for blind in found.blind] == ["tombstones"]
    assert listed.name in found.blind[0].where
    assert purge_workspace.purge().record.erasure.claim == "complete"
    assert listed.name in caplog.text


def test_a_file_of_a_current_release_is_never_purged(purge_workspace: PurgeWorkspace) -> None:
    released = sha256_file(purge_workspace.authority.model_workspace.deletion("surgery") / WEIGHTS)
    with refused(UsageError, key="purge.also", value=released):
        purge_workspace.plan(f"purge.also=[{released}]")


def test_targets_of_a_purge_that_was_begun_are_known_to_the_next_run(purge_workspace: PurgeWorkspace) -> None:
    params = purge_workspace.params()
    assert len(begun(params, purge_workspace.certificate)) == 0
    begin(
        params, purge_workspace.certificate, Targets([Target(sha256="a" * 64, what="features", md5="b" * 32, size=7)])
    )
    (again,) = begun(params, purge_workspace.certificate)
    assert (again.sha256, again.md5, again.size) == ("a" * 64, "b" * 32, 7)
    assert "a" * 64 in {target.sha256 for target in purge_workspace.plan().purged.targets}


def test_features_are_not_removed_while_it_is_unknown_which_models_need_them(purge_workspace: PurgeWorkspace) -> None:
    store = purge_workspace.authority.folder / "store"
    record = sha256_file(purge_workspace.authority.model_workspace.deletion("surgery") / MODEL)
    (store / object_name(record)).write_bytes(b"{}")  # so that the model seems to need nothing
    with pytest.raises((DataError, VerificationError)):
        purge_workspace.plan("purge.features=true")
    purge_workspace.plan()


def test_features_are_not_removed_while_the_certificate_of_another_model_is_withheld(
    purge_workspace: PurgeWorkspace,
) -> None:
    authority = purge_workspace.authority
    other = sha256_file(authority.publish(purge_workspace.kind, "other") / CERTIFICATE)
    purge_workspace.plan("purge.features=true")
    (authority.folder / "store" / certificate_name(other)).unlink()
    with refused(DataError, file=certificate_name(other)):
        purge_workspace.plan("purge.features=true")

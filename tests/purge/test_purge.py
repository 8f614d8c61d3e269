"""A whole purge in a repository with a plain folder as its DVC remote, and without a git remote."""

import shutil
from pathlib import Path

from mbd.errors import UsageError
from mbd.files import sha256_file
from mbd.formats.statement import PurgeStatement, to_payload
from mbd.history.entries import read_entry
from mbd.history.tombstones import store_tombstones
from mbd.records import now
from tests.purge.workspace import PurgeWorkspace, digests_below, holding
from tests.refusals import refused


def test_after_a_purge_no_place_holds_an_old_byte_and_nothing_else_has_changed(purge_workspace: PurgeWorkspace) -> None:
    everything = (purge_workspace.work, purge_workspace.folder / "remote", purge_workspace.folder / "machine" / "tmp")
    (snapshot,) = (purge_workspace.work / "build" / ".model.resume").iterdir()
    old = {purge_workspace.old_weights(), sha256_file(snapshot), *purge_workspace.audio_files()}
    before = digests_below(*everything)
    assert len(holding(old, *everything)) == 6 + 3 * len(purge_workspace.audio_files())

    done = purge_workspace.purge("purge.features=true")

    assert done.record.erasure.claim == "complete"
    assert holding(old, *everything) == []
    kept = {path: digest for path, digest in before.items() if digest not in old}
    after = digests_below(*everything)
    changed = [path for path in kept if after.get(path) != kept[path] and ".dvc/tmp" not in str(path)]
    assert changed == []
    found = {place.kind: place.found for place in done.record.places if place.found}
    files = 1 + len(purge_workspace.audio_files())
    assert found == {
        "workspace": files + 1,
        "DVC cache": files,
        "DVC remote": files,
        "local pipeline outputs": 1,
        "temporary folder": 1,
    }
    tombstones = store_tombstones(purge_workspace.params(), purge_workspace.authority.url)
    assert {target.sha256 for target in tombstones} == old
    assert {"refs/heads/main", "refs/heads/release", "refs/tags/v1", "refs/exps/aa/bb/some-experiment"} <= {
        *done.record.refs
    }


def test_the_statement_is_signed_and_logged_and_discloses_no_digest_and_no_address(
    purge_workspace: PurgeWorkspace, tmp_path: Path
) -> None:
    done = purge_workspace.purge()
    found = read_entry(
        purge_workspace.authority.store, purge_workspace.certificate, purge_workspace.authority.trust, now()
    )
    (said,) = found.about
    assert isinstance(said, PurgeStatement)
    assert said.predicate.erasure.claim == "complete"
    assert found.status.state == "valid"
    assert said.predicate.proof == sha256_file(done.proof)
    assert done.proof.stat().st_mode & 0o077 == 0
    text = to_payload(said).decode()
    assert purge_workspace.old_weights() not in text
    assert str(purge_workspace.folder) not in text
    verdict = purge_workspace.authority.verify_in_store(purge_workspace.certificate, tmp_path / "verified")
    assert verdict.verified
    assert verdict.claims["erasure"]["claim"] == "complete"


def test_an_inventory_changes_nothing(purge_workspace: PurgeWorkspace) -> None:
    before = digests_below(purge_workspace.work, purge_workspace.folder / "remote", purge_workspace.authority.folder)
    findings = purge_workspace.plan().inventory()
    assert sum(finding.found for finding in findings) == 6
    after = digests_below(purge_workspace.work, purge_workspace.folder / "remote", purge_workspace.authority.folder)
    assert {p: d for p, d in after.items() if ".dvc/tmp" not in str(p)} == {
        p: d for p, d in before.items() if ".dvc/tmp" not in str(p)
    }


def test_features_that_other_models_need_are_kept_and_listed(purge_workspace: PurgeWorkspace) -> None:
    other = purge_workspace.work / "build" / "other"
    shutil.copytree(purge_workspace.authority.model_workspace.folder / "lattice", other)
    done = purge_workspace.purge("purge.features=true")
    assert {needed.sha256 for needed in done.record.excepted} == purge_workspace.audio_files()
    assert {needed.where for needed in done.record.excepted} == {str(other / "model.json")}
    assert done.record.erasure.claim == "partial"
    assert all(place.gone for place in done.record.places)
    assert len(holding(purge_workspace.audio_files(), purge_workspace.work / "build" / "features")) == len(
        purge_workspace.audio_files()
    )
    assert holding([purge_workspace.old_weights()], purge_workspace.work, purge_workspace.folder / "remote") == []


def test_features_are_removed_if_the_model_that_needs_them_is_purged_too(purge_workspace: PurgeWorkspace) -> None:
    other = purge_workspace.work / "build" / "other"
    shutil.copytree(purge_workspace.authority.model_workspace.folder / "lattice", other)
    weights = sha256_file(other / "model.safetensors")
    done = purge_workspace.purge("purge.features=true", f"purge.also=[{weights}]")
    assert (done.record.erasure.claim, done.record.excepted) == ("complete", ())
    assert holding([weights, *purge_workspace.audio_files()], purge_workspace.work) == []


def test_a_remote_that_is_not_mounted_is_an_obstacle(purge_workspace: PurgeWorkspace) -> None:
    shutil.move(purge_workspace.folder / "remote", purge_workspace.folder / "elsewhere")
    done = purge_workspace.purge()
    assert done.record.erasure.claim == "partial"
    (unclean,) = [place for place in done.record.places if not place.gone]
    assert (unclean.kind, unclean.obstacles[0].reason) == ("DVC remote", "the folder does not exist")
    shutil.move(purge_workspace.folder / "elsewhere", purge_workspace.folder / "remote")
    again = purge_workspace.purge()
    assert again.record.erasure.claim == "complete"
    assert [place.removed for place in again.record.places if place.kind == "DVC remote"] == [1]


def test_a_shared_cache_is_kept_unless_the_parameters_allow_its_removal(purge_workspace: PurgeWorkspace) -> None:
    shutil.move(purge_workspace.work / ".dvc" / "cache", purge_workspace.folder / "shared")
    config = purge_workspace.work / ".dvc" / "config"
    config.write_text(config.read_text() + f"[cache]\n    dir = {purge_workspace.folder / 'shared'}\n")
    done = purge_workspace.purge()
    assert done.record.erasure.claim == "partial"
    (unclean,) = [place for place in done.record.places if not place.gone]
    assert (unclean.kind, unclean.left) == ("DVC cache", 1)
    assert "purge.shared_caches=true" in unclean.obstacles[0].hint
    assert purge_workspace.purge("purge.shared_caches=true").record.erasure.claim == "complete"


def test_weights_committed_to_git_are_reported_and_the_history_is_kept(purge_workspace: PurgeWorkspace) -> None:
    shutil.copyfile(
        purge_workspace.authority.model_workspace.folder / "model" / "model.safetensors",
        purge_workspace.work / "released.bin",
    )
    purge_workspace.repository.git("add", "released.bin")
    purge_workspace.repository.git("commit", "--quiet", "--message", "weights in git")
    head = purge_workspace.repository.git("rev-parse", "HEAD")
    done = purge_workspace.purge()
    assert done.record.erasure.claim == "partial"
    (unclean,) = [place for place in done.record.places if not place.gone]
    assert (unclean.kind, unclean.found, unclean.removed) == ("git history", 1, 0)
    assert "git filter-repo" in unclean.obstacles[0].hint
    assert purge_workspace.repository.git("rev-parse", "HEAD") == head
    assert not (purge_workspace.work / "released.bin").exists()


def test_the_released_model_is_never_purged(purge_workspace: PurgeWorkspace) -> None:
    released = sha256_file(purge_workspace.authority.model_workspace.deletion("surgery") / "model.safetensors")
    with refused(UsageError, key="purge.also", value=released):
        purge_workspace.purge(f"purge.also=[{released}]")

"""A whole purge in a repository with a plain folder as its DVC remote, and without a git remote."""

import shutil
from pathlib import Path

import pytest

from mbd.certificate.lifecycle import PENDING
from mbd.certificate.registry import entry
from mbd.certificate.statement import PurgeStatement, to_payload
from mbd.certificate.trust import now
from mbd.errors import UsageError
from mbd.files import sha256_file
from mbd.purge.tombstones import buried
from tests.purge.estate import Estate, digests_below, holding


def test_after_a_purge_no_place_holds_an_old_byte_and_nothing_else_has_changed(estate: Estate) -> None:
    everything = (estate.work, estate.folder / "remote", estate.folder / "machine" / "tmp")
    (snapshot,) = (estate.work / "build" / ".model.resume").iterdir()
    old = {estate.old_weights(), sha256_file(snapshot), *estate.audio_files()}
    before = digests_below(*everything)
    assert len(holding(old, *everything)) == 6 + 3 * len(estate.audio_files())

    done = estate.purge("purge.features=true")

    assert done.record.erasure.claim == "complete"
    assert holding(old, *everything) == []
    kept = {path: digest for path, digest in before.items() if digest not in old}
    after = digests_below(*everything)
    changed = [path for path in kept if after.get(path) != kept[path] and ".dvc/tmp" not in str(path)]
    assert changed == []
    found = {place.kind: place.found for place in done.record.places if place.found}
    files = 1 + len(estate.audio_files())
    assert found == {
        "workspace": files + 1,
        "DVC cache": files,
        "DVC remote": files,
        "local pipeline outputs": 1,
        "temporary folder": 1,
    }
    assert {target.sha256 for target in buried(estate.office.store)} == old
    assert {"refs/heads/main", "refs/heads/release", "refs/tags/v1", "refs/exps/aa/bb/some-experiment"} <= {
        *done.record.refs
    }


def test_the_statement_is_signed_logged_and_tells_no_digest_and_no_address(estate: Estate, tmp_path: Path) -> None:
    done = estate.purge()
    found = entry(estate.office.store, estate.certificate, estate.office.trust, now())
    (said,) = found.about
    assert isinstance(said, PurgeStatement)
    assert said.predicate.erasure.claim == "complete"
    assert found.status.state == "valid"
    assert said.predicate.proof == sha256_file(done.proof)
    assert done.proof.stat().st_mode & 0o077 == 0
    text = to_payload(said).decode()
    assert estate.old_weights() not in text
    assert str(estate.folder) not in text
    verdict = estate.office.verify_in_store(estate.certificate, tmp_path / "verified")
    assert verdict.verified
    assert verdict.claims["erasure"]["claim"] == "complete"
    assert not list(estate.office.store.list(PENDING))


def test_nothing_is_changed_by_looking(estate: Estate) -> None:
    before = digests_below(estate.work, estate.folder / "remote", estate.office.folder)
    findings = estate.plan().inventory()
    assert sum(finding.found for finding in findings) == 6
    after = digests_below(estate.work, estate.folder / "remote", estate.office.folder)
    assert {p: d for p, d in after.items() if ".dvc/tmp" not in str(p)} == {
        p: d for p, d in before.items() if ".dvc/tmp" not in str(p)
    }


def test_features_of_other_models_stay_and_are_listed(estate: Estate) -> None:
    other = estate.work / "build" / "other"
    shutil.copytree(estate.office.home.folder / "lattice", other)
    done = estate.purge("purge.features=true")
    assert {needed.sha256 for needed in done.record.excepted} == estate.audio_files()
    assert {needed.where for needed in done.record.excepted} == {str(other / "model.json")}
    assert done.record.erasure.claim == "partial"
    assert all(place.gone for place in done.record.places)
    assert len(holding(estate.audio_files(), estate.work / "build" / "features")) == len(estate.audio_files())
    assert holding([estate.old_weights()], estate.work, estate.folder / "remote") == []


def test_if_that_model_goes_as_well_they_go_with_it(estate: Estate) -> None:
    other = estate.work / "build" / "other"
    shutil.copytree(estate.office.home.folder / "lattice", other)
    weights = sha256_file(other / "model.safetensors")
    done = estate.purge("purge.features=true", f"purge.also=[{weights}]")
    assert (done.record.erasure.claim, done.record.excepted) == ("complete", ())
    assert holding([weights, *estate.audio_files()], estate.work) == []


def test_a_remote_that_is_not_mounted_is_not_an_empty_one(estate: Estate) -> None:
    shutil.move(estate.folder / "remote", estate.folder / "elsewhere")
    done = estate.purge()
    assert done.record.erasure.claim == "partial"
    (unclean,) = [place for place in done.record.places if not place.gone]
    assert (unclean.kind, unclean.obstacles[0].reason) == ("DVC remote", "it is not there")
    shutil.move(estate.folder / "elsewhere", estate.folder / "remote")
    again = estate.purge()
    assert again.record.erasure.claim == "complete"
    assert [place.removed for place in again.record.places if place.kind == "DVC remote"] == [1]


def test_a_shared_cache_is_left_to_people_until_they_say_otherwise(estate: Estate) -> None:
    shutil.move(estate.work / ".dvc" / "cache", estate.folder / "shared")
    config = estate.work / ".dvc" / "config"
    config.write_text(config.read_text() + f"[cache]\n    dir = {estate.folder / 'shared'}\n")
    done = estate.purge()
    assert done.record.erasure.claim == "partial"
    (unclean,) = [place for place in done.record.places if not place.gone]
    assert (unclean.kind, unclean.left) == ("DVC cache", 1)
    assert "purge.shared_caches=true" in unclean.obstacles[0].way_out
    assert estate.purge("purge.shared_caches=true").record.erasure.claim == "complete"


def test_weights_in_git_itself_are_told_and_never_rewritten(estate: Estate) -> None:
    shutil.copyfile(estate.office.home.folder / "model" / "model.safetensors", estate.work / "released.bin")
    estate.repository.git("add", "released.bin")
    estate.repository.git("commit", "--quiet", "--message", "weights in git")
    head = estate.repository.git("rev-parse", "HEAD")
    done = estate.purge()
    assert done.record.erasure.claim == "partial"
    (unclean,) = [place for place in done.record.places if not place.gone]
    assert (unclean.kind, unclean.found, unclean.removed) == ("git history", 1, 0)
    assert "git filter-repo" in unclean.obstacles[0].way_out
    assert estate.repository.git("rev-parse", "HEAD") == head
    assert not (estate.work / "released.bin").exists()


def test_the_released_model_is_never_purged(estate: Estate) -> None:
    released = sha256_file(estate.office.home.deletion("surgery") / "model.safetensors")
    with pytest.raises(UsageError, match="of the released model"):
        estate.purge(f"purge.also=[{released}]")

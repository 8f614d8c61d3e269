"""A revocation is remembered, whatever happens to the objects of the store that no key has signed."""

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mbd.certificate.guard import admit
from mbd.certificate.publish import Publisher
from mbd.certificate.verification import from_store, verify_bundle
from mbd.errors import VerificationError
from mbd.formats.leakage import Interval
from mbd.history.replay import read_history
from mbd.history.state import read_entry
from mbd.log.reader import Log
from mbd.log.tiles import CHECKPOINT
from mbd.params.operations import StoreSettings
from mbd.records import now
from mbd.trust.keys import LOG, TRUST, load_signer, revoke_key, rotate_key
from mbd.verifier.checks import REAUDIT
from mbd.verifier.verdict import CONSISTENCY, STATE
from tests.certificate.campaign import Campaign, fill, remember_parsed_envelopes
from tests.history import revocations
from tests.history.revocations import publish_again_with_audio, verdict_on
from tests.monitoring.golden_store import GOLDEN, GoldenStore, days_from_now, golden_leakage


@pytest.fixture
def golden_store(tmp_path: Path) -> GoldenStore:
    return GoldenStore.open(tmp_path)


def publisher(golden_store: GoldenStore) -> Publisher:
    log = load_signer(f"file:{golden_store.folder}/keys/{LOG}.pem")
    return Publisher(golden_store.store, StoreSettings(), log, golden_store.trust)


def test_a_revoked_modality_does_not_come_back_when_unsigned_objects_are_lost(golden_store: GoldenStore) -> None:
    revocations.a_revoked_modality_does_not_come_back(golden_store)


def test_a_model_that_takes_a_revoked_modality_is_neither_verified_nor_admitted(golden_store: GoldenStore) -> None:
    revocations.a_model_that_takes_it_again_is_neither_verified_nor_admitted(golden_store)


def test_a_revocation_does_not_disappear_with_one_object(golden_store: GoldenStore) -> None:
    revocations.a_revocation_does_not_disappear_with_one_object(golden_store)


def test_a_bad_pointer_does_not_stop_the_guard(golden_store: GoldenStore) -> None:
    revocations.a_bad_pointer_does_not_stop_the_guard(golden_store)


def test_an_old_head_is_not_believed(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    revocations.an_old_head_is_not_believed(golden_store, monkeypatch)


def test_an_audit_by_a_stranger_moves_no_date(golden_store: GoldenStore) -> None:
    revocations.an_audit_by_a_stranger_moves_no_date(golden_store)


def test_junk_does_not_look_like_a_log(golden_store: GoldenStore) -> None:
    revocations.junk_does_not_look_like_a_log(golden_store)


def test_a_planted_claim_brings_nothing_back(golden_store: GoldenStore) -> None:
    revocations.a_planted_claim_brings_nothing_back(golden_store)


def test_after_a_backup_was_restored_nothing_is_published_until_the_log_is_whole(golden_store: GoldenStore) -> None:
    store = golden_store.folder / "store"
    golden_store.files("exact", "subjects")
    golden_store.certificate("certified", model="another")
    shutil.copytree(store, golden_store.folder / "backup")
    golden_store.certificate("exact", model=revocations.NAME)
    read_history(golden_store.store, golden_store.trust)
    store.rename(golden_store.folder / "newest")
    shutil.copytree(golden_store.folder / "backup", store)
    with pytest.raises(VerificationError, match="has shrunk"):
        publish_again_with_audio(golden_store)
    with pytest.raises(VerificationError, match="has shrunk"):
        publisher(golden_store).renew()
    with pytest.raises(VerificationError, match="has shrunk"):
        admit(GOLDEN / "exact" / "model", golden_store.store, golden_store.trust)


def test_a_log_that_was_rolled_back_is_not_signed_by_a_new_key(golden_store: GoldenStore) -> None:
    store, keys = golden_store.folder / "store", golden_store.folder / "keys"
    digest = golden_store.certificate("exact")
    shutil.copytree(store, golden_store.folder / "backup")
    golden_store.revoke(digest)
    read_history(golden_store.store, golden_store.trust)
    store.rename(golden_store.folder / "newest")
    shutil.copytree(golden_store.folder / "backup", store)
    revoke_key(keys / TRUST, LOG, "lost", None)
    rotate_key(keys, LOG, overlap=timedelta(days=1))
    with pytest.raises(VerificationError, match="has shrunk"):
        publisher(golden_store).repair()
    shutil.rmtree(store)
    (golden_store.folder / "newest").rename(store)
    assert publisher(golden_store).repair().signed_again
    assert read_history(golden_store.store, golden_store.trust).size == 2


def test_a_checkpoint_that_was_rolled_back_alone_is_noticed_by_every_reader(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    digest, checkpoint = golden_store.certificate("exact"), golden_store.folder / "store" / CHECKPOINT
    before = checkpoint.read_bytes()
    golden_store.revoke(digest)
    checkpoint.write_bytes(before)
    with pytest.raises(VerificationError, match="has shrunk: a signed checkpoint has 2 entries"):
        read_history(golden_store.store, golden_store.trust, cached=False)
    given = from_store(golden_store.store, digest, golden_store.folder / "fetched")
    assert verify_bundle(given, golden_store.trust).check(CONSISTENCY).outcome == "failed"


# The age of the checkpoint


def test_a_store_that_freezes_its_log_is_refused_after_some_days(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    digest = golden_store.certificate("exact")
    given = from_store(golden_store.store, digest, golden_store.folder / "fetched")
    later = now() + timedelta(days=8)
    check = verify_bundle(given, golden_store.trust, at=later).check(STATE)
    assert (check.outcome, "older than 7 days" in check.reason) == ("not checkable", True)
    assert verify_bundle(given, golden_store.trust, at=later, max_age=timedelta(days=9)).verified
    with pytest.raises(VerificationError, match="older than 7 days"):
        admit(GOLDEN / "exact" / "model", golden_store.store, golden_store.trust, at=later)


def test_a_renewed_checkpoint_is_recent_and_keeps_the_time_of_its_entries(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden_store.certificate("exact")
    first, later = Log(golden_store.store, golden_store.trust).head, now() + timedelta(days=6)
    monkeypatch.setattr("mbd.log.repair.now", lambda: later)
    for _ in range(2):
        renewed = publisher(golden_store).renew()
        assert renewed is not None
        assert (renewed.size, renewed.root, renewed.time) == (first.size, first.root, later)
    log = Log(golden_store.store, golden_store.trust)
    assert log.first_checkpoint_with(0).time == first.time
    golden_store.revoke(next(iter(read_history(golden_store.store, golden_store.trust).certificates)))
    assert read_history(golden_store.store, golden_store.trust, cached=False).size == 2


def test_an_empty_log_needs_no_renewal(golden_store: GoldenStore) -> None:
    assert publisher(golden_store).renew() is None


def test_a_log_without_entries_that_were_logged_is_not_renewed(golden_store: GoldenStore) -> None:
    golden_store.certificate("exact")
    store = golden_store.folder / "store"
    shutil.copytree(store / "log", golden_store.folder / "log")
    golden_store.certificate("certified")
    shutil.rmtree(store / "log")
    shutil.copytree(golden_store.folder / "log", store / "log")
    with pytest.raises(VerificationError, match="rolled back"):
        publisher(golden_store).renew()


# Audits


@pytest.mark.parametrize("forged", ["weights", "modalities", "attacks", "numbers", "date"])
def test_a_forged_audit_moves_no_date(golden_store: GoldenStore, forged: str) -> None:
    issued, due = days_from_now(-40), days_from_now(-1)
    golden_store.files("surgery")
    digest = golden_store.certificate("surgery", issued=issued, reaudit_by=due)
    golden_store.audit(digest, **_forgery(forged))
    found = read_entry(golden_store.store, digest, golden_store.trust, now())
    assert (found.status.state, found.status.reaudit_by) == ("overdue", due)
    assert verdict_on(golden_store, digest).check(REAUDIT).outcome == "failed"
    golden_store.audit(digest)
    assert read_entry(golden_store.store, digest, golden_store.trust, now()).status.state == "valid"


def _forgery(forged: str) -> dict[str, Any]:
    """Return changes of an audit, all of which leave its decision as it is: passed."""
    leakage = golden_leakage("surgery")
    high = Interval(value=0.9, low=0.88, high=0.92)
    leak = {"after": high, "difference": Interval(value=0.4, low=0.35, high=0.45)}
    changes: dict[str, dict[str, Any]] = {
        "weights": {"models": {"after": "0" * 64}},
        "modalities": {"modalities": ("visual",)},
        "attacks": {"attacks": ()},
        "numbers": {"attacks": tuple(one.model_copy(update=leak) for one in leakage.attacks)},
        "date": {"days": 9999},
    }
    return changes[forged]


def test_a_certificate_with_a_date_out_of_bounds_is_refused(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    check = verdict_on(golden_store, golden_store.certificate("exact", days=400)).check(REAUDIT)
    assert (check.outcome, "366 days" in check.reason) == ("failed", True)


@pytest.mark.slow
def test_nothing_becomes_valid_by_losing_or_exchanging_one_object(
    golden_store: GoldenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_parsed_envelopes(monkeypatch)
    campaign = Campaign(golden_store, fill(golden_store, 3))
    campaign.run(tmp_path / "work")
    assert campaign.counts["removed"] >= 50
    assert campaign.counts["replaced by an older one"] >= 4

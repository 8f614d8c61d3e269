"""A revocation is remembered, whatever happens to the objects of the store that no key has signed."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mbd.certificate.guard import admit
from mbd.certificate.publish import Publisher
from mbd.certificate.verification import VerificationInput, from_store, verify_bundle
from mbd.errors import UsageError, VerificationError
from mbd.formats.layout import certificate_name, proof_name
from mbd.formats.leakage import Interval
from mbd.history.entries import read_entry
from mbd.history.facts import Release
from mbd.history.replay import read_history
from mbd.log.check import adopt_log, check_log
from mbd.log.reader import Log
from mbd.log.tiles import CHECKPOINT
from mbd.params.operations import StoreSettings
from mbd.records import now
from mbd.storage import open_store
from mbd.trust.keys import LOG, TRUST, load_signer, revoke_key, rotate_key
from mbd.verifier.checks import REAUDIT
from mbd.verifier.verdict import CONSISTENCY, WITHDRAWAL
from tests.certificate.campaign import Campaign, fill, remember_parsed_envelopes, spellings
from tests.history import revocations
from tests.history.revocations import not_admitted, publish_again_with_audio, verdict_on
from tests.log.build import another_machine, refused_as_shrunk, refused_as_unknown
from tests.monitoring.golden_store import GOLDEN, GoldenStore, days_from_now, golden_leakage
from tests.refusals import refused


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


def test_an_older_store_is_refused_under_every_address(golden_store: GoldenStore) -> None:
    folder = golden_store.folder
    (folder / "link").symlink_to(folder / "store")
    (folder / "elsewhere").mkdir()
    places = ("link", "store/../store", "elsewhere")
    revocations.an_older_store_is_refused_under_every_address(
        golden_store, *(open_store(f"file://{folder}/{place}") for place in places)
    )


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
    with refused_as_shrunk():
        publish_again_with_audio(golden_store)
    with refused_as_shrunk():
        publisher(golden_store).renew()
    with refused_as_shrunk():
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
    with refused_as_shrunk():
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
    with refused(VerificationError, match="has 2 entries", file=CHECKPOINT):
        read_history(golden_store.store, golden_store.trust, cached=False)
    given = from_store(golden_store.store, digest, golden_store.folder / "fetched")
    assert verify_bundle(given, golden_store.trust).check(CONSISTENCY).outcome == "failed"


# The age of the checkpoint


def test_a_store_that_freezes_its_log_is_refused_after_some_days(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    digest = golden_store.certificate("exact")
    given = from_store(golden_store.store, digest, golden_store.folder / "fetched")
    later = now() + timedelta(days=8)
    check = verify_bundle(given, golden_store.trust, at=later).check(WITHDRAWAL)
    assert (check.outcome, "older than 7 days" in check.reason) == ("not checkable", True)
    assert verify_bundle(given, golden_store.trust, at=later, max_age=timedelta(days=9)).verified
    with pytest.raises(VerificationError, match="older than 7 days"):
        admit(GOLDEN / "exact" / "model", golden_store.store, golden_store.trust, at=later)


def test_a_renewed_checkpoint_is_recent_and_keeps_the_time_of_its_entries(
    golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden_store.certificate("exact")
    first, later = Log(golden_store.store, golden_store.trust).head, now() + timedelta(days=6)
    monkeypatch.setattr("mbd.log.check.now", lambda: later)
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


def test_a_log_without_entries_that_were_logged_is_not_renewed_and_not_taken_up(golden_store: GoldenStore) -> None:
    golden_store.certificate("exact")
    store = golden_store.folder / "store"
    shutil.copytree(store / "log", golden_store.folder / "log")
    golden_store.certificate("certified")
    shutil.rmtree(store / "log")
    shutil.copytree(golden_store.folder / "log", store / "log")
    with refused_as_shrunk():
        publisher(golden_store).renew()
    with another_machine(golden_store.folder / "another"):
        with refused_as_unknown():
            publisher(golden_store).renew()
        with pytest.raises(VerificationError, match="a signed checkpoint of size 2, and the log has 1 entries"):
            adopt_log(golden_store.store, golden_store.trust)


# Keys of the log


def all_say(golden_store: GoldenStore, digest: str, bundle: VerificationInput) -> set[bool]:
    """Return whether the check of the log, the list, verification in both places and the guard find nothing wrong."""
    store, trust = golden_store.store, golden_store.trust
    model = GOLDEN / "exact" / "model"

    def holds(ask: Callable[[], object]) -> bool:
        try:
            return bool(ask())
        except VerificationError:
            return False

    asked: list[Callable[[], object]] = [
        lambda: not check_log(store, trust, certificate_name=certificate_name).problems,
        lambda: read_entry(store, digest, trust, now()).status.state == "valid",
        lambda: verdict_on(golden_store, digest).verified,
        lambda: verify_bundle(bundle, trust).verified,
        lambda: admit(model, store, trust).certificate == digest,
    ]
    return {holds(ask) for ask in asked}


def test_after_the_key_of_the_log_was_revoked_and_replaced_all_commands_say_the_same(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    digest = golden_store.certificate("exact")
    bundle = from_store(golden_store.store, digest, golden_store.folder / "bundle")
    proof = golden_store.store.read(proof_name(digest))
    assert all_say(golden_store, digest, bundle) == {True}
    rotate_key(golden_store.folder / "keys", LOG, overlap=timedelta(days=1))
    assert publisher(golden_store).renew()
    assert all_say(golden_store, digest, bundle) == {True}
    for key in golden_store.trust.keys_for("log"):
        revoke_key(golden_store.trust_file, key.id, "lost", None)
    assert all_say(golden_store, digest, bundle) == {False}
    rotate_key(golden_store.folder / "keys", LOG, overlap=timedelta(days=1))
    assert publisher(golden_store).repair().signed_again
    assert all_say(golden_store, digest, bundle) == {True}
    assert golden_store.store.read(proof_name(digest)) != proof
    assert publisher(golden_store).renew()
    assert all_say(golden_store, digest, bundle) == {True}
    assert not verify_bundle(replace(bundle, store=None), golden_store.trust).genuine  # nothing but the old proof


# One model under several names


def admitted(golden_store: GoldenStore, name: str | None = None) -> Release:
    return admit(GOLDEN / "exact" / "model", golden_store.store, golden_store.trust, name=name).release


def test_weights_with_several_names_are_loaded_under_one_of_them(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    digests = {name: golden_store.certificate("exact", model=name) for name in ("sentiment", "staging")}
    with refused(UsageError, key="--as", value="sentiment, staging"):
        admitted(golden_store)
    for name, digest in digests.items():
        assert admitted(golden_store, name).digest == digest


def test_weights_that_an_audit_has_refuted_are_not_admitted_by_another_name(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    refuted = golden_store.certificate("exact", model="sentiment")
    assert admitted(golden_store).digest == refuted
    golden_store.audit(refuted, kind="exact", decision="refused", reasons=("it leaks",))
    golden_store.registration("exact", model="staging")
    with not_admitted("refused by the audit"):
        admitted(golden_store, "staging")
    later = golden_store.certificate("exact", model="staging")  # its evidence is an audit that passed since
    assert admitted(golden_store, "staging").digest == later


def test_weights_that_hold_what_is_revoked_for_one_name_are_not_admitted_by_another(golden_store: GoldenStore) -> None:
    golden_store.files("exact")
    for name in ("sentiment", "staging"):
        golden_store.registration("exact", model=name, sees=("audio", "text", "visual"))
    assert admitted(golden_store, "staging").model == "staging"
    golden_store.certificate("surgery", model="sentiment")
    with not_admitted("audio is revoked for sentiment"):
        admitted(golden_store, "staging")


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
    truth = fill(golden_store, 3)
    campaign = Campaign(spellings(golden_store), truth)
    campaign.run(tmp_path / "work")
    assert campaign.counts["removed"] >= 50
    assert campaign.counts["replaced by a link"] >= 50
    assert campaign.counts["replaced by an older one"] == campaign.counts["replaced by a link to an older one"] >= 4
    assert campaign.counts["log refused, as remembered"] >= 4

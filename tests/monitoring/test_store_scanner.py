"""Scans of a store: only what is new is read, and no change goes unnoticed."""

from pathlib import Path

import pytest

from mbd.formats.layout import certificate_name, object_name, proof_name
from mbd.formats.request import Lease
from mbd.log.tiles import CHECKPOINT
from mbd.monitoring.store_scanner import InvalidEntry, RequestFacts, ScanStoppedError
from mbd.production.batches import Batches
from mbd.storage.store import StoreError
from mbd.trust.keys import revoke_key
from mbd.trust.trust_file import read_trust
from tests.monitoring.golden_store import GoldenStore, days_from_now
from tests.refusals import refused_as_unreadable


def file_of(lifecycle_store: GoldenStore, name: str) -> Path:
    return lifecycle_store.folder / "store" / name


def test_a_second_scan_reads_only_what_is_new(lifecycle_store: GoldenStore) -> None:
    first, scanner = lifecycle_store.certificate(), lifecycle_store.scanner()
    lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30, token="a")
    assert scanner.scan().read == 2
    assert scanner.scan().read == 0
    second = lifecycle_store.certificate("exact")
    found = scanner.scan()
    assert found.read == 1
    assert list(found.history.certificates) == [first, second]
    assert found.history.size == 2


def test_a_scan_after_a_restart_reads_only_what_is_new(lifecycle_store: GoldenStore) -> None:
    digest = lifecycle_store.certificate()
    assert lifecycle_store.scanner().scan().read == 1
    found = lifecycle_store.scanner().scan()
    assert found.read == 0
    assert found.problem is None
    assert list(found.history.certificates) == [digest]
    lifecycle_store.certificate("exact")
    assert lifecycle_store.scanner().scan().read == 1
    assert lifecycle_store.scanner().scan().read == 0


def test_a_restart_forgets_neither_the_log_nor_what_was_damaged_meanwhile(lifecycle_store: GoldenStore) -> None:
    first = lifecycle_store.certificate()
    checkpoint = file_of(lifecycle_store, CHECKPOINT).read_bytes()
    second = lifecycle_store.certificate("exact")
    lifecycle_store.scanner().scan()
    file = file_of(lifecycle_store, certificate_name(first))
    good = file.read_bytes()
    file.write_bytes(good + b" ")
    for _ in range(2):
        assert [one.digest for one in lifecycle_store.scanner().scan().history.blocking] == [first]
    file.write_bytes(good)
    assert lifecycle_store.scanner().scan().problem is None
    file_of(lifecycle_store, certificate_name(second)).unlink()
    assert [one.digest for one in lifecycle_store.scanner().scan().history.blocking] == [second]
    file_of(lifecycle_store, CHECKPOINT).write_bytes(checkpoint)
    assert "shrunk" in (lifecycle_store.scanner().scan().log_problem or "")


def test_a_request_that_changes_state_is_read_again(lifecycle_store: GoldenStore) -> None:
    request, scanner = (
        lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30),
        lifecycle_store.scanner(),
    )
    scanner.scan()
    lifecycle_store.request_store.claim(request, Lease(worker="w", until=days_from_now(1), batch="b" * 16))
    found = scanner.scan()
    (facts,) = found.requests.values()
    assert found.read == 1
    assert isinstance(facts, RequestFacts)
    assert facts.state == "running"
    assert [state for state, _ in facts.events] == ["received", "running"]
    Batches(lifecycle_store.request_store, "sentiment").note("b" * 16, [request.id], "deleted")
    (noted,) = scanner.scan().requests.values()
    assert noted == facts  # a stage that has ended is not a change of state
    assert lifecycle_store.request_store.get(request.id).history[-1].note == "deleted"


def test_a_modified_certificate_makes_all_states_unknown_until_it_is_restored(lifecycle_store: GoldenStore) -> None:
    digest, scanner = lifecycle_store.certificate(), lifecycle_store.scanner()
    assert scanner.scan().problem is None
    file = file_of(lifecycle_store, certificate_name(digest))
    good = file.read_bytes()
    for _ in range(2):
        file.write_bytes(good + b" ")
        found = scanner.scan()
        assert [one.digest for one in found.history.blocking] == [digest]
        assert "entry 0 of the log cannot be read" in (found.problem or "")
    file.write_bytes(good)
    assert scanner.scan().problem is None


def test_so_does_a_certificate_that_was_removed(lifecycle_store: GoldenStore) -> None:
    _, gone, scanner = lifecycle_store.certificate(), lifecycle_store.certificate("exact"), lifecycle_store.scanner()
    scanner.scan()
    file = file_of(lifecycle_store, certificate_name(gone))
    content = file.read_bytes()
    file.unlink()
    for look in (scanner, lifecycle_store.scanner()):
        assert [(one.digest, one.index) for one in look.scan().history.blocking] == [(gone, 1)]
    file.write_bytes(content)
    assert scanner.scan().problem is None


def test_a_certificate_without_its_proof_is_known_by_the_log(lifecycle_store: GoldenStore) -> None:
    digest = lifecycle_store.certificate()
    file_of(lifecycle_store, proof_name(digest)).unlink()
    found = lifecycle_store.scanner().scan()
    assert (list(found.history.certificates), found.problem) == ([digest], None)


def test_what_is_not_in_the_log_is_counted(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.certificate()
    lifecycle_store.store.create(certificate_name("a" * 64), b"{}")
    found = lifecycle_store.scanner().scan()
    assert (found.unlogged, found.problem) == (1, None)


def test_statements_about_a_certificate_are_found(lifecycle_store: GoldenStore) -> None:
    certificate = lifecycle_store.certificate()
    revoked, audited = (
        lifecycle_store.revoke(certificate),
        lifecycle_store.audit(certificate, decision="refused", reasons=("it leaks",)),
    )
    about = lifecycle_store.scanner().scan().history.about(certificate)
    assert [(one.digest, one.effect) for one in about] == [(revoked, "revoked"), (audited, "refuted")]


def test_certificates_signed_by_a_revoked_key_do_not_count(lifecycle_store: GoldenStore) -> None:
    digest, scanner = lifecycle_store.certificate(), lifecycle_store.scanner()
    assert list(scanner.scan().history.certificates) == [digest]
    revoke_key(lifecycle_store.trust_file, "signer", "stolen", log_size=0)
    assert read_trust(lifecycle_store.trust_file).keys_for("certificate")[0].revoked
    found = scanner.scan()
    assert found.read == 1
    assert found.history.certificates == {}
    assert [one.digest for one in found.history.findings] == [digest]


def test_a_log_that_was_rolled_back_is_a_problem_until_it_is_restored(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.certificate()
    checkpoint = file_of(lifecycle_store, CHECKPOINT)
    old = checkpoint.read_bytes()
    lifecycle_store.certificate("exact")
    new, scanner = checkpoint.read_bytes(), lifecycle_store.scanner()
    assert scanner.scan().log_problem is None
    checkpoint.write_bytes(old)
    for _ in range(2):
        found = scanner.scan()
        assert "shrunk" in (found.log_problem or "")
        assert found.history.size == 2
    checkpoint.unlink()
    assert "shrunk" in (scanner.scan().log_problem or "")
    checkpoint.write_bytes(new)
    assert scanner.scan().problem is None


def test_a_damaged_request_is_invalid(lifecycle_store: GoldenStore) -> None:
    request = lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30)
    file_of(lifecycle_store, f"private/requests/{request.id}.json").write_text("{}")
    assert isinstance(lifecycle_store.scanner().scan().requests[f"requests/{request.id}.json"], InvalidEntry)


def test_a_missing_or_suddenly_empty_store_is_an_error(lifecycle_store: GoldenStore) -> None:
    scanner = lifecycle_store.scanner()
    assert scanner.scan().history.certificates == {}  # nothing has been published yet
    lifecycle_store.certificate()
    scanner.scan()
    store = lifecycle_store.folder / "store"
    store.rename(lifecycle_store.folder / "away")
    with pytest.raises(StoreError, match="does not exist"):
        scanner.scan()
    store.mkdir()
    with pytest.raises(StoreError, match="the store is empty"):
        scanner.scan()
    store.rmdir()
    (lifecycle_store.folder / "away").rename(store)
    assert len(scanner.scan().history.certificates) == 1


def test_without_a_trust_file_nothing_is_looked_at(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.trust_file.unlink()
    with refused_as_unreadable(lifecycle_store.trust_file):
        lifecycle_store.scanner().scan()


def test_purged_files_that_are_back_in_the_store_are_counted(lifecycle_store: GoldenStore) -> None:
    buried, back, kept = "a" * 64, "b" * 64, "c" * 64
    certificate = lifecycle_store.certificate()
    lifecycle_store.purge(certificate, buried, back)
    for planted in (f"tombstones/sha256/{kept}", f"private/tombstones/{kept}"):
        lifecycle_store.store.create(planted, b"{}")
    for digest in (back, kept):
        lifecycle_store.store.create(object_name(digest), b"weights")
    found = lifecycle_store.scanner().scan()
    assert (found.tombstones, found.resurrected) == (2, 1)
    lifecycle_store.private.create(f"batches/files/{buried}", b"weights")
    assert lifecycle_store.scanner().scan().resurrected == 2


def test_a_long_scan_can_be_cancelled(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.certificate()
    scanner = lifecycle_store.scanner()
    with pytest.raises(ScanStoppedError):
        scanner.scan(lambda: True)
    assert scanner.scan().read == 1

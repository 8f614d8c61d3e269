"""Looks at a store: at the price of what is new, and nothing that was changed goes unseen."""

from pathlib import Path

import pytest

from mbd.certificate.keyring import revoke_key
from mbd.certificate.layout import certificate_name, object_name, proof_name, tombstone_name
from mbd.certificate.log.tiles import CHECKPOINT
from mbd.certificate.trust import read_trust
from mbd.errors import DataError
from mbd.monitoring.facts import CertificateFacts, InvalidEntry, RequestFacts, StatementFacts
from mbd.monitoring.scan import StoppedError
from mbd.requests.record import Lease
from mbd.storage.store import StoreError
from tests.monitoring.golden_store import GoldenStore, days_from_now


def file_of(lifecycle_store: GoldenStore, name: str) -> Path:
    return lifecycle_store.folder / "store" / name


def test_a_second_look_reads_only_what_is_new(lifecycle_store: GoldenStore) -> None:
    first, scanner = lifecycle_store.certificate(), lifecycle_store.scanner()
    lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30, token="a")
    assert scanner.scan().read == 2
    assert scanner.scan().read == 0
    second = lifecycle_store.certificate("exact")
    found = scanner.scan()
    assert found.read == 1
    assert {type(found.certificates[digest]) for digest in (first, second)} == {CertificateFacts}
    assert found.log is not None
    assert found.log.size == 2


def test_a_request_that_moves_on_is_read_again(lifecycle_store: GoldenStore) -> None:
    request, scanner = (
        lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30),
        lifecycle_store.scanner(),
    )
    scanner.scan()
    lifecycle_store.request_store.claim(request, Lease(worker="w", until=days_from_now(1), batch="b"))
    found = scanner.scan()
    (facts,) = found.requests.values()
    assert found.read == 1
    assert isinstance(facts, RequestFacts)
    assert facts.state == "running"
    assert [state for state, _ in facts.reached] == ["received", "running"]


def test_what_somebody_changed_is_in_doubt_until_it_is_brought_back(lifecycle_store: GoldenStore) -> None:
    digest, scanner = lifecycle_store.certificate(), lifecycle_store.scanner()
    scanner.scan()
    file = file_of(lifecycle_store, certificate_name(digest))
    good = file.read_bytes()
    file.write_bytes(good.replace(b"A", b"B", 1))
    assert isinstance(scanner.scan().certificates[digest], InvalidEntry)
    file.write_bytes(good)
    assert isinstance(scanner.scan().certificates[digest], CertificateFacts)


def test_a_certificate_is_in_doubt_until_its_proof_is_there(lifecycle_store: GoldenStore) -> None:
    digest = lifecycle_store.certificate()
    proof = file_of(lifecycle_store, proof_name(digest))
    content = proof.read_bytes()
    proof.unlink()
    scanner = lifecycle_store.scanner()
    assert isinstance(scanner.scan().certificates[digest], InvalidEntry)
    proof.write_bytes(content)
    assert isinstance(scanner.scan().certificates[digest], CertificateFacts)


def test_a_certificate_that_was_taken_away_is_forgotten(lifecycle_store: GoldenStore) -> None:
    kept, gone, scanner = lifecycle_store.certificate(), lifecycle_store.certificate("exact"), lifecycle_store.scanner()
    scanner.scan()
    file_of(lifecycle_store, certificate_name(gone)).unlink()
    file_of(lifecycle_store, proof_name(gone)).unlink()
    assert set(scanner.scan().certificates) == {kept}


def test_statements_about_a_certificate_are_known(lifecycle_store: GoldenStore) -> None:
    certificate = lifecycle_store.certificate()
    revoked, audited = (
        lifecycle_store.revoke(certificate),
        lifecycle_store.audit(certificate, decision="refused", reasons=("it leaks",)),
    )
    found = lifecycle_store.scanner().scan().certificates
    kinds = {digest: fact.kind for digest, fact in found.items() if isinstance(fact, StatementFacts)}
    assert kinds == {revoked: "revoked", audited: "refuted"}


def test_a_revoked_key_puts_every_certificate_in_doubt(lifecycle_store: GoldenStore) -> None:
    digest, scanner = lifecycle_store.certificate(), lifecycle_store.scanner()
    assert isinstance(scanner.scan().certificates[digest], CertificateFacts)
    revoke_key(lifecycle_store.trust_file, "signer", "stolen", log_size=0)
    assert read_trust(lifecycle_store.trust_file).keys_for("certificate")[0].revoked
    found = scanner.scan()
    assert found.read == 1
    assert isinstance(found.certificates[digest], InvalidEntry)


def test_a_log_that_was_taken_back_is_told_until_it_is_what_it_was(lifecycle_store: GoldenStore) -> None:
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
        assert found.log is not None
        assert found.log.size == 2
    checkpoint.unlink()
    assert "gone" in (scanner.scan().log_problem or "")
    checkpoint.write_bytes(new)
    assert scanner.scan().log_problem is None


def test_a_damaged_request_is_in_doubt(lifecycle_store: GoldenStore) -> None:
    request = lifecycle_store.request_store.submit("sentiment", ["audio"], due_days=30)
    file_of(lifecycle_store, f"requests/{request.id}.json").write_text("{}")
    assert isinstance(lifecycle_store.scanner().scan().requests[f"requests/{request.id}.json"], InvalidEntry)


def test_a_store_that_is_away_or_empty_is_not_taken_for_one_without_certificates(lifecycle_store: GoldenStore) -> None:
    scanner = lifecycle_store.scanner()
    assert scanner.scan().certificates == {}  # nothing has been published yet
    lifecycle_store.certificate()
    scanner.scan()
    store = lifecycle_store.folder / "store"
    store.rename(lifecycle_store.folder / "away")
    with pytest.raises(StoreError, match="there is no folder"):
        scanner.scan()
    store.mkdir()
    with pytest.raises(StoreError, match="is gone"):
        scanner.scan()
    store.rmdir()
    (lifecycle_store.folder / "away").rename(store)
    assert len(scanner.scan().certificates) == 1


def test_without_a_trust_file_nothing_is_looked_at(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.trust_file.unlink()
    with pytest.raises(DataError, match="trust file"):
        lifecycle_store.scanner().scan()


def test_purged_files_that_are_in_the_store_again_are_found(lifecycle_store: GoldenStore) -> None:
    buried, back, kept = "a" * 64, "b" * 64, "c" * 64
    for digest in (buried, back):
        lifecycle_store.store.create(tombstone_name("sha256", digest), b"{}")
        lifecycle_store.store.create(tombstone_name("md5", digest[:32]), b"{}")
    for digest in (back, kept):
        lifecycle_store.store.create(object_name(digest), b"weights")
    found = lifecycle_store.scanner().scan()
    assert (found.tombstones, found.resurrected) == (2, 1)
    lifecycle_store.store.create(f"batches/files/{buried}", b"weights")
    assert lifecycle_store.scanner().scan().resurrected == 2


def test_a_long_look_can_be_called_off(lifecycle_store: GoldenStore) -> None:
    lifecycle_store.certificate()
    scanner = lifecycle_store.scanner()
    with pytest.raises(StoppedError):
        scanner.scan(lambda: True)
    assert scanner.scan().read == 1

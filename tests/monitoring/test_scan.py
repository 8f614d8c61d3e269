"""Looks at a store: at the price of what is new, and nothing that was changed goes unseen."""

from pathlib import Path

import pytest

from mbd.certificate.keyring import revoke_key
from mbd.certificate.layout import certificate_name, object_name, proof_name, tombstone_name
from mbd.certificate.log.tiles import CHECKPOINT
from mbd.certificate.trust import read_trust
from mbd.errors import DataError
from mbd.monitoring.facts import Certificate, Doubt, Remark, RequestFacts
from mbd.monitoring.scan import StoppedError
from mbd.requests.record import Lease
from mbd.storage.store import StoreError
from tests.monitoring.shop import Shop, days_from_now


def file_of(shop: Shop, name: str) -> Path:
    return shop.folder / "store" / name


def test_a_second_look_reads_only_what_is_new(shop: Shop) -> None:
    first, scanner = shop.certificate(), shop.scanner()
    shop.book.submit("sentiment", ["audio"], due_days=30, token="a")
    assert scanner.scan().read == 2
    assert scanner.scan().read == 0
    second = shop.certificate("exact")
    found = scanner.scan()
    assert found.read == 1
    assert {type(found.certificates[digest]) for digest in (first, second)} == {Certificate}
    assert found.log is not None
    assert found.log.size == 2


def test_a_request_that_moves_on_is_read_again(shop: Shop) -> None:
    request, scanner = shop.book.submit("sentiment", ["audio"], due_days=30), shop.scanner()
    scanner.scan()
    shop.book.claim(request, Lease(worker="w", until=days_from_now(1), batch="b"))
    found = scanner.scan()
    (facts,) = found.requests.values()
    assert found.read == 1
    assert isinstance(facts, RequestFacts)
    assert facts.state == "running"
    assert [state for state, _ in facts.reached] == ["received", "running"]


def test_what_somebody_changed_is_in_doubt_until_it_is_brought_back(shop: Shop) -> None:
    digest, scanner = shop.certificate(), shop.scanner()
    scanner.scan()
    file = file_of(shop, certificate_name(digest))
    good = file.read_bytes()
    file.write_bytes(good.replace(b"A", b"B", 1))
    assert isinstance(scanner.scan().certificates[digest], Doubt)
    file.write_bytes(good)
    assert isinstance(scanner.scan().certificates[digest], Certificate)


def test_a_certificate_is_in_doubt_until_its_proof_is_there(shop: Shop) -> None:
    digest = shop.certificate()
    proof = file_of(shop, proof_name(digest))
    content = proof.read_bytes()
    proof.unlink()
    scanner = shop.scanner()
    assert isinstance(scanner.scan().certificates[digest], Doubt)
    proof.write_bytes(content)
    assert isinstance(scanner.scan().certificates[digest], Certificate)


def test_a_certificate_that_was_taken_away_is_forgotten(shop: Shop) -> None:
    kept, gone, scanner = shop.certificate(), shop.certificate("exact"), shop.scanner()
    scanner.scan()
    file_of(shop, certificate_name(gone)).unlink()
    file_of(shop, proof_name(gone)).unlink()
    assert set(scanner.scan().certificates) == {kept}


def test_statements_about_a_certificate_are_known(shop: Shop) -> None:
    certificate = shop.certificate()
    revoked, audited = shop.revoke(certificate), shop.audit(certificate, decision="refused", reasons=("it leaks",))
    found = shop.scanner().scan().certificates
    kinds = {digest: fact.kind for digest, fact in found.items() if isinstance(fact, Remark)}
    assert kinds == {revoked: "revoked", audited: "refuted"}


def test_a_revoked_key_puts_every_certificate_in_doubt(shop: Shop) -> None:
    digest, scanner = shop.certificate(), shop.scanner()
    assert isinstance(scanner.scan().certificates[digest], Certificate)
    revoke_key(shop.trust_file, "signer", "stolen", log_size=0)
    assert read_trust(shop.trust_file).keys_for("certificate")[0].revoked
    found = scanner.scan()
    assert found.read == 1
    assert isinstance(found.certificates[digest], Doubt)


def test_a_log_that_was_taken_back_is_told_until_it_is_what_it_was(shop: Shop) -> None:
    shop.certificate()
    checkpoint = file_of(shop, CHECKPOINT)
    old = checkpoint.read_bytes()
    shop.certificate("exact")
    new, scanner = checkpoint.read_bytes(), shop.scanner()
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


def test_a_damaged_request_is_in_doubt(shop: Shop) -> None:
    request = shop.book.submit("sentiment", ["audio"], due_days=30)
    file_of(shop, f"requests/{request.id}.json").write_text("{}")
    assert isinstance(shop.scanner().scan().requests[f"requests/{request.id}.json"], Doubt)


def test_a_store_that_is_away_or_empty_is_not_taken_for_one_without_certificates(shop: Shop) -> None:
    scanner = shop.scanner()
    assert scanner.scan().certificates == {}  # nothing has been published yet
    shop.certificate()
    scanner.scan()
    store = shop.folder / "store"
    store.rename(shop.folder / "away")
    with pytest.raises(StoreError, match="there is no folder"):
        scanner.scan()
    store.mkdir()
    with pytest.raises(StoreError, match="is gone"):
        scanner.scan()
    store.rmdir()
    (shop.folder / "away").rename(store)
    assert len(scanner.scan().certificates) == 1


def test_without_a_trust_file_nothing_is_looked_at(shop: Shop) -> None:
    shop.trust_file.unlink()
    with pytest.raises(DataError, match="trust file"):
        shop.scanner().scan()


def test_purged_files_that_are_in_the_store_again_are_found(shop: Shop) -> None:
    buried, back, kept = "a" * 64, "b" * 64, "c" * 64
    for digest in (buried, back):
        shop.store.create(tombstone_name("sha256", digest), b"{}")
        shop.store.create(tombstone_name("md5", digest[:32]), b"{}")
    for digest in (back, kept):
        shop.store.create(object_name(digest), b"weights")
    found = shop.scanner().scan()
    assert (found.tombstones, found.resurrected) == (2, 1)
    shop.store.create(f"batches/files/{buried}", b"weights")
    assert shop.scanner().scan().resurrected == 2


def test_a_long_look_can_be_called_off(shop: Shop) -> None:
    shop.certificate()
    scanner = shop.scanner()
    with pytest.raises(StoppedError):
        scanner.scan(lambda: True)
    assert scanner.scan().read == 1

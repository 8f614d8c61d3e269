"""Where a certificate stands, and the statements that change it, in a real store."""

import shutil
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from mbd.certificate.bundle import Bundle
from mbd.certificate.commitments import Commitments
from mbd.certificate.keyring import make_keys
from mbd.certificate.lifecycle import (
    PENDING,
    announce,
    finish_pending,
    reaudit,
    revocation,
    supersession,
)
from mbd.certificate.log.reader import Log
from mbd.certificate.registry import Doubtful, Entry, entries, entry
from mbd.certificate.signing import sign_statement
from mbd.certificate.statement import AnyStatement, DeletionStatement, to_payload
from mbd.certificate.status import Status, status
from mbd.certificate.trust import now
from mbd.errors import DataError, UsageError, VerificationError
from mbd.storage.store import Store
from tests.certificate.build import ISSUED, Home
from tests.certificate.killing import killed_at
from tests.certificate.office import Office

OLD, NEW = "a" * 64, "b" * 64
DAY = timedelta(days=1)


class Shop:
    """A store with one published certificate."""

    def __init__(self, home: Home, folder: Path, kind: str = "surgery") -> None:
        self.office, self.kind = Office.make(home, folder), kind
        self.settings = self.office.params().certificate
        self.digest = self.issue("first")
        self.publisher = self.office.publisher()

    def issue(self, name: str, **options: object) -> str:
        """Certify and publish."""
        return Bundle(self.office.publish(self.kind, name, **options)).digest

    def entry(self, digest: str | None = None) -> Entry:
        """Return what the store says of a certificate."""
        return entry(self.publisher.store, digest or self.digest, self.publisher.trust, now())

    def size(self) -> int:
        """Return how many entries the log has."""
        return Log(self.publisher.store, self.publisher.trust).size


@pytest.fixture
def shop(home: Home, tmp_path: Path) -> Shop:
    return Shop(home, tmp_path)


def states(certificate: DeletionStatement, *about: AnyStatement, after: timedelta = DAY) -> Status:
    return status(certificate, about, certificate.predicate.issued + after)


def test_where_a_certificate_stands_follows_from_what_is_said_about_it(home: Home, tmp_path: Path) -> None:
    certificate = home.certify("surgery", tmp_path / "bundle", clock=lambda: ISSUED)["statement"]
    passed = reaudit(OLD, certificate, home.leakage("surgery"), ISSUED + 80 * DAY, 90, Commitments())  # type: ignore[arg-type]
    failing = home.leakage("surgery", tmp_path / "leak", decision="refused", reasons=("it leaks",))
    assert failing is not None
    refused = reaudit(OLD, certificate, failing, ISSUED + 80 * DAY, 90, Commitments())
    revoked, replaced = revocation(OLD, "a mistake", ISSUED), supersession(OLD, NEW, "a better method", ISSUED)
    assert states(certificate).state == "valid"
    assert states(certificate, after=91 * DAY).state == "overdue"
    assert states(certificate, passed, after=91 * DAY).state == "valid"
    assert states(certificate, passed).reaudit_by == ISSUED + 170 * DAY
    assert states(certificate, passed, after=171 * DAY).state == "overdue"
    assert states(certificate, passed, refused).state == "refuted"
    assert "it leaks" in states(certificate, refused).reason
    assert states(certificate, refused, replaced).state == "superseded"
    assert states(certificate, refused, replaced, revoked).state == "revoked"
    assert "a mistake" in states(certificate, revoked).reason
    successor = certificate.model_copy(
        update={"predicate": certificate.predicate.model_copy(update={"supersedes": OLD})}
    )
    assert states(certificate, successor).state == "superseded"


def test_a_revoked_certificate_is_revoked_for_everybody_who_asks_the_store(shop: Shop) -> None:
    assert shop.entry().status.state == "valid"
    announce(revocation(shop.digest, "the attack suite had a bug", now()), shop.settings, shop.publisher)
    assert shop.entry().status.state == "revoked"
    assert shop.size() == 2
    assert not list(shop.publisher.store.list(PENDING))


def test_a_new_certificate_takes_the_place_of_the_one_it_names(shop: Shop) -> None:
    newer = shop.issue("newer", supersedes=shop.digest)
    assert (shop.entry().status.state, shop.entry(newer).status.state) == ("superseded", "valid")


def test_so_does_one_that_is_said_to(shop: Shop) -> None:
    newer = shop.issue("newer", clock=lambda: now() - timedelta(minutes=1))
    assert shop.entry().status.state == "valid"
    announce(supersession(shop.digest, newer, "better", now()), shop.settings, shop.publisher)
    assert (shop.entry().status.state, shop.entry(newer).status.state) == ("superseded", "valid")


def test_a_new_audit_sets_the_next_date_and_tells_no_old_digest(home: Home, tmp_path: Path) -> None:
    shop = Shop(home, tmp_path, "certified")
    found, commitments = shop.entry(), Commitments()
    leakage = home.leakage("certified")
    assert leakage is not None
    statement = reaudit(found.digest, found.statement, leakage, now(), 365, commitments)
    announce(statement, shop.settings, shop.publisher, commitments)
    assert shop.entry().status.reaudit_by > found.status.reaudit_by
    secrets = {opening.value for opening in commitments.openings}
    assert len(secrets) == 2
    assert not any(secret in to_payload(statement).decode() for secret in secrets)
    assert list((tmp_path / "private").iterdir())


def test_an_audit_of_another_model_is_refused(shop: Shop, home: Home) -> None:
    other = home.leakage("certified")
    assert other is not None
    with pytest.raises(UsageError, match="not what was certified"):
        reaudit(shop.digest, shop.entry().statement, other, now(), 90, Commitments())


def test_a_statement_whose_writer_was_killed_is_finished_by_the_next_one(shop: Shop) -> None:
    envelope = sign_statement(revocation(shop.digest, "killed on the way", now()), shop.settings)
    shop.publisher.store.create(PENDING + envelope.digest, envelope.to_bytes())
    assert shop.entry().status.state == "valid"
    assert finish_pending(shop.publisher) == 1
    assert shop.entry().status.state == "revoked"
    assert finish_pending(shop.publisher) == 0
    assert shop.size() == 2


def test_killed_anywhere_and_run_again_a_certificate_is_revoked_once(shop: Shop, tmp_path: Path) -> None:
    published = tmp_path / "published"
    shutil.copytree(tmp_path / "store", published)

    def revoke(store: Store) -> None:
        publisher = replace(shop.publisher, store=store)
        finish_pending(publisher)
        if entry(store, shop.digest, publisher.trust, now()).status.state != "revoked":
            announce(revocation(shop.digest, "a reason", now()), shop.settings, publisher)

    for operation in count(1):
        shutil.rmtree(tmp_path / "store")
        shutil.copytree(published, tmp_path / "store")
        killed = killed_at(operation, "after", lambda: shop.office.store, revoke)
        revoke(shop.office.store)
        assert shop.entry().status.state == "revoked"
        assert shop.size() == 2
        assert not list(shop.publisher.store.list(PENDING))
        if not killed:
            break


@pytest.mark.parametrize("junk", [b"junk", b"{}"])
def test_pending_junk_is_left_alone(shop: Shop, junk: bytes) -> None:
    shop.publisher.store.create(PENDING + "junk", junk)
    assert finish_pending(shop.publisher) == 0
    assert shop.size() == 1


def test_a_statement_of_somebody_unknown_is_neither_announced_nor_finished(shop: Shop, tmp_path: Path) -> None:
    make_keys(tmp_path / "stranger", "signer")
    stranger = shop.settings.model_copy(update={"signers": (f"file:{tmp_path}/stranger/signer.pem",)})
    statement = revocation(shop.digest, "malice", now())
    with pytest.raises(VerificationError):
        announce(statement, stranger, shop.publisher)
    envelope = sign_statement(statement, stranger)
    shop.publisher.store.create(PENDING + envelope.digest, envelope.to_bytes())
    assert finish_pending(shop.publisher) == 0
    assert shop.entry().status.state == "valid"


def test_reasons_and_names_are_asked_for() -> None:
    with pytest.raises(UsageError, match="reason"):
        revocation(OLD, " ", ISSUED)
    with pytest.raises(UsageError, match="its own place"):
        supersession(OLD, OLD, "why not", ISSUED)


def test_the_registry_lists_certificates_and_what_is_wrong_with_a_store(shop: Shop) -> None:
    announce(revocation(shop.digest, "a reason", now()), shop.settings, shop.publisher)
    store, trust = shop.publisher.store, shop.publisher.trust
    assert [e.digest for e in entries(store, trust, now())] == [shop.digest]
    forged = f"certificates/{OLD}/certificate.json"
    store.create(forged, b"{}")
    found = {e.digest: e for e in entries(store, trust, now())}
    assert isinstance(found[OLD], Doubtful)
    assert isinstance(found[shop.digest], Entry)


def test_a_certificate_is_found_by_the_start_of_its_digest(shop: Shop) -> None:
    assert shop.entry(shop.digest[:12]).digest == shop.digest
    for start in (shop.digest[:3], "0" * 64):
        with pytest.raises(DataError, match="no such certificate"):
            shop.entry(start)
    said = announce(revocation(shop.digest, "a reason", now()), shop.settings, shop.publisher)
    with pytest.raises(UsageError, match="about one"):
        shop.entry(said)

"""The state of a certificate, and the statements that change it, in a real store."""

import shutil
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from mbd.certificate.compose import compose_reaudit, compose_revocation, compose_supersession
from mbd.certificate.publish import announce
from mbd.errors import DataError, UsageError, VerificationError
from mbd.formats.layout import certificate_name
from mbd.formats.statement import AnyStatement, DeletionStatement, to_payload
from mbd.history.entries import CertificateEntry, InvalidCertificate, read_entries, read_entry
from mbd.history.facts import certificate_facts, statement_facts
from mbd.history.history import History
from mbd.history.replay import read_history
from mbd.history.state import Status, states_in, status_in
from mbd.log.check import adopt_log
from mbd.log.checkpoint import leaf_of
from mbd.log.reader import Log, LogDamagedError
from mbd.log.tiles import claim_name
from mbd.records import now
from mbd.storage.folder import FolderStore
from mbd.storage.store import Store
from mbd.trust.commitments import Commitments
from mbd.trust.keys import make_keys, sign_statement
from mbd.verifier.bundle import Bundle
from tests.certificate.authority import CertificateAuthority
from tests.certificate.build import ISSUED, ModelWorkspace
from tests.certificate.killing import killed_at
from tests.log.build import become_another_machine, refused_claim
from tests.refusals import refused

OLD, NEW = "a" * 64, "b" * 64
DAY = timedelta(days=1)


class LifecycleStore:
    """A store with one published certificate."""

    def __init__(self, model_workspace: ModelWorkspace, folder: Path, kind: str = "surgery") -> None:
        self.authority, self.kind = CertificateAuthority.make(model_workspace, folder), kind
        self.settings = self.authority.params().certificate
        self.digest = self.issue("first")
        self.publisher = self.authority.publisher()

    def issue(self, name: str, **options: object) -> str:
        """Certify and publish."""
        return Bundle(self.authority.publish(self.kind, name, **options)).digest

    def entry(self, digest: str | None = None) -> CertificateEntry:
        """Return what the store says of a certificate."""
        return read_entry(self.publisher.store, digest or self.digest, self.publisher.trust, now())

    def size(self) -> int:
        """Return how many entries the log has."""
        return Log(self.publisher.store, self.publisher.trust).size


@pytest.fixture
def golden_store(model_workspace: ModelWorkspace, tmp_path: Path) -> LifecycleStore:
    return LifecycleStore(model_workspace, tmp_path)


def states(certificate: DeletionStatement, *about: AnyStatement, after: timedelta = DAY) -> Status:
    facts = certificate_facts(0, OLD, certificate)
    statements = (statement_facts(index, NEW, statement, OLD, facts) for index, statement in enumerate(about, start=1))
    history = History(FolderStore(Path("nowhere")), None, {OLD: facts}, tuple(statements))
    return status_in(history, facts, certificate.predicate.issued + after)


def test_the_state_of_a_certificate_follows_from_the_statements_about_it(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    certificate = model_workspace.certify("surgery", tmp_path / "bundle", clock=lambda: ISSUED).statement
    passing = model_workspace.leakage("surgery")
    failing = model_workspace.leakage("surgery", tmp_path / "leak", decision="refused", reasons=("it leaks",))
    assert passing is not None
    assert failing is not None
    passed, _ = compose_reaudit(OLD, certificate, passing, ISSUED + 80 * DAY, 90, Commitments())
    refused, _ = compose_reaudit(OLD, certificate, failing, ISSUED + 80 * DAY, 90, Commitments())
    revoked, replaced = (
        compose_revocation(OLD, "a mistake", ISSUED),
        compose_supersession(OLD, NEW, "a better method", ISSUED),
    )
    assert states(certificate).state == "valid"
    assert states(certificate, after=91 * DAY).state == "overdue"
    assert states(certificate, passed, after=91 * DAY).state == "valid"
    assert states(certificate, passed).reaudit_by == ISSUED + 170 * DAY
    assert states(certificate, passed, after=171 * DAY).state == "overdue"
    assert states(certificate, passed, refused).state == "refuted"
    assert "it leaks" in states(certificate, refused).reason
    assert states(certificate, replaced).state == "superseded"
    assert states(certificate, refused, replaced).state == "refuted"
    assert states(certificate, refused, replaced, revoked).state == "revoked"
    assert "a mistake" in states(certificate, revoked).reason
    successor = certificate.model_copy(
        update={"predicate": certificate.predicate.model_copy(update={"supersedes": OLD})}
    )
    assert states(certificate, successor).state == "superseded"


def test_a_revoked_certificate_is_revoked_for_every_reader_of_the_store(golden_store: LifecycleStore) -> None:
    assert golden_store.entry().status.state == "valid"
    announce(
        compose_revocation(golden_store.digest, "the attack suite had a bug", now()),
        golden_store.settings,
        golden_store.publisher,
    )
    assert golden_store.entry().status.state == "revoked"
    assert golden_store.size() == 2


def test_a_new_certificate_takes_the_place_of_the_one_it_names(golden_store: LifecycleStore) -> None:
    newer = golden_store.issue("newer", supersedes=golden_store.digest)
    assert (golden_store.entry().status.state, golden_store.entry(newer).status.state) == ("superseded", "valid")


def test_all_states_at_once_are_those_of_one_certificate_after_the_other(golden_store: LifecycleStore) -> None:
    newer = golden_store.issue("newer", supersedes=golden_store.digest)
    history = read_history(golden_store.publisher.store, golden_store.publisher.trust)
    for at, problem in ((now(), None), (now(), "an entry is missing"), (now() + 1000 * DAY, None)):
        one_by_one = {
            one.digest: (status.state, status.decision)
            for one in history.certificates.values()
            for status in [status_in(history, one, at, problem, max_age=None)]
        }
        assert states_in(history, at, problem) == one_by_one
        assert one_by_one[golden_store.digest] == ("superseded", "not verified" if problem else "replaced")
    assert one_by_one[newer] == ("overdue", "not verified")


def test_a_statement_can_replace_a_certificate_by_another(golden_store: LifecycleStore) -> None:
    newer = golden_store.issue("newer", clock=lambda: now() - timedelta(minutes=1))
    assert golden_store.entry().status.state == "valid"
    announce(
        compose_supersession(golden_store.digest, newer, "better", now()), golden_store.settings, golden_store.publisher
    )
    assert (golden_store.entry().status.state, golden_store.entry(newer).status.state) == ("superseded", "valid")


def test_a_new_audit_sets_the_next_date_and_reveals_no_old_digest(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    golden_store = LifecycleStore(model_workspace, tmp_path, "certified")
    found, commitments = golden_store.entry(), Commitments()
    leakage = model_workspace.leakage("certified")
    assert leakage is not None
    statement, _ = compose_reaudit(found.digest, found.statement, leakage, now(), 365, commitments)
    announce(statement, golden_store.settings, golden_store.publisher, commitments)
    assert golden_store.entry().status.reaudit_by > found.status.reaudit_by
    secrets = {opening.value for opening in commitments.openings}
    assert len(secrets) == 2
    assert not any(secret in to_payload(statement).decode() for secret in secrets)
    assert list((tmp_path / "private").iterdir())


def test_an_audit_of_another_model_is_refused(golden_store: LifecycleStore, model_workspace: ModelWorkspace) -> None:
    other = model_workspace.leakage("certified")
    assert other is not None
    with refused(UsageError, key="models.after"):
        compose_reaudit(golden_store.digest, golden_store.entry().statement, other, now(), 90, Commitments())


def claimed(golden_store: LifecycleStore, envelope: bytes) -> None:
    """Claim the next place in the log, as anyone can who may write to the store."""
    golden_store.publisher.store.create(claim_name(golden_store.size()), leaf_of(envelope))


def test_a_statement_whose_writer_was_killed_is_logged_by_the_next_one(golden_store: LifecycleStore) -> None:
    envelope = sign_statement(
        compose_revocation(golden_store.digest, "killed on the way", now()), golden_store.settings
    )
    golden_store.publisher.store.create(certificate_name(envelope.digest), envelope.to_bytes())
    claimed(golden_store, envelope.to_bytes())
    assert golden_store.entry().status.state == "valid"
    assert golden_store.publisher.complete() == 1
    assert golden_store.entry().status.state == "revoked"
    assert golden_store.publisher.complete() == 0
    assert golden_store.size() == 2


@pytest.mark.slow
def test_killed_anywhere_and_run_again_a_certificate_is_revoked_once(
    golden_store: LifecycleStore, tmp_path: Path
) -> None:
    published = tmp_path / "published"
    shutil.copytree(tmp_path / "store", published)

    def revoke(store: Store) -> None:
        publisher = replace(golden_store.publisher, store=store)
        publisher.complete()
        if read_entry(store, golden_store.digest, publisher.trust, now()).status.state != "revoked":
            announce(compose_revocation(golden_store.digest, "a reason", now()), golden_store.settings, publisher)

    for operation in count(1):
        become_another_machine(tmp_path / f"cache-{operation}")  # the store is put back each time
        shutil.rmtree(tmp_path / "store")
        shutil.copytree(published, tmp_path / "store")
        adopt_log(golden_store.authority.store, golden_store.authority.trust)
        killed = killed_at(operation, "after", lambda: golden_store.authority.store, revoke)
        revoke(golden_store.authority.store)
        assert golden_store.entry().status.state == "revoked"
        assert golden_store.size() == 2
        if not killed:
            break


@pytest.mark.parametrize("junk", [b"junk", b"{}"])
def test_what_is_no_statement_is_never_logged(golden_store: LifecycleStore, junk: bytes) -> None:
    claimed(golden_store, junk)
    for _ in range(2):
        with refused_claim(1):
            golden_store.publisher.complete()
        golden_store.publisher.store.create(certificate_name(leaf_of(junk).hex()), junk)
    with refused_claim(1):
        announce(
            compose_revocation(golden_store.digest, "a reason", now()), golden_store.settings, golden_store.publisher
        )
    assert golden_store.entry().status.state == "valid"


def test_a_statement_of_an_unknown_signer_is_neither_announced_nor_logged(
    golden_store: LifecycleStore, tmp_path: Path
) -> None:
    make_keys(tmp_path / "stranger", "signer")
    stranger = golden_store.settings.model_copy(update={"signers": (f"file:{tmp_path}/stranger/signer.pem",)})
    statement = compose_revocation(golden_store.digest, "malice", now())
    with pytest.raises(VerificationError):
        announce(statement, stranger, golden_store.publisher)
    envelope = sign_statement(statement, stranger)
    golden_store.publisher.store.create(certificate_name(envelope.digest), envelope.to_bytes())
    claimed(golden_store, envelope.to_bytes())
    with refused(LogDamagedError, match="not in the trust file", file=claim_name(1)):
        golden_store.publisher.complete()
    assert golden_store.entry().status.state == "valid"


def test_reasons_and_names_are_asked_for() -> None:
    with refused(UsageError, key="--reason"):
        compose_revocation(OLD, " ", ISSUED)
    with refused(UsageError, key="--by", value=OLD):
        compose_supersession(OLD, OLD, "why not", ISSUED)


def test_certificates_are_listed_and_so_is_what_does_not_count(golden_store: LifecycleStore) -> None:
    announce(compose_revocation(golden_store.digest, "a reason", now()), golden_store.settings, golden_store.publisher)
    store, trust = golden_store.publisher.store, golden_store.publisher.trust
    assert [e.digest for e in read_entries(store, trust, now())] == [golden_store.digest]
    forged = f"certificates/{OLD}/certificate.json"
    store.create(forged, b"{}")
    found = {e.digest: e for e in read_entries(store, trust, now())}
    assert isinstance(found[OLD], InvalidCertificate)
    assert isinstance(found[golden_store.digest], CertificateEntry)


def test_a_certificate_is_found_by_the_start_of_its_digest(golden_store: LifecycleStore) -> None:
    assert golden_store.entry(golden_store.digest[:12]).digest == golden_store.digest
    for start in (golden_store.digest[:3], "0" * 64):
        with refused(DataError, value=start):
            golden_store.entry(start)
    said = announce(
        compose_revocation(golden_store.digest, "a reason", now()), golden_store.settings, golden_store.publisher
    )
    with refused(UsageError, value=said):
        golden_store.entry(said)

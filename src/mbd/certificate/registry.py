"""The certificates in a store: which there are, and where each of them stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from mbd.certificate.envelope import Envelope, verify_envelope
from mbd.certificate.layout import CERTIFICATES, certificate_name, proof_name
from mbd.certificate.status import Status, status
from mbd.certificate.trust import Trust
from mbd.certificate.verify.signing import log_finding
from mbd.certificate.verify.standing import statements_about
from mbd.errors import DataError, UsageError, VerificationError
from mbd.formats.statement import CERTIFICATE, AnyStatement, DeletionStatement, parse_payload
from mbd.storage.store import NotThereError, Store

_SHORTEST = 8


@dataclass(frozen=True)
class CertificateEntry:
    """A published certificate."""

    digest: str
    """SHA-256 of its envelope"""
    statement: DeletionStatement
    status: Status
    about: tuple[AnyStatement, ...]


@dataclass(frozen=True)
class InvalidCertificate:
    """Something in the store that is not what it should be."""

    digest: str
    reason: str


def published(store: Store) -> Iterator[str]:
    """Yield the SHA-256 of every published envelope, in order."""
    for found in store.list(f"{CERTIFICATES}/"):
        _, digest, file = (*found.name.split("/"), "", "")[:3]
        if file == CERTIFICATE:
            yield digest


def entries(store: Store, trust: Trust, at: datetime) -> Iterator[CertificateEntry | InvalidCertificate]:
    """Yield every certificate of a store, with its signatures and its place in the log verified."""
    for digest in published(store):
        try:
            statement = read_statement(store, digest, trust)
            if isinstance(statement, DeletionStatement):
                yield _entry(store, digest, statement, trust, at)
        except (VerificationError, DataError) as error:
            yield InvalidCertificate(digest, error.problem)


def entry(store: Store, start: str, trust: Trust, at: datetime) -> CertificateEntry:
    """Return one certificate, named by its digest or the start of it."""
    digest = find(store, start)
    statement = read_statement(store, digest, trust)
    if not isinstance(statement, DeletionStatement):
        raise UsageError("this is no certificate, but a statement about one", value=digest)
    return _entry(store, digest, statement, trust, at)


def _entry(store: Store, digest: str, statement: DeletionStatement, trust: Trust, at: datetime) -> CertificateEntry:
    about = tuple(statements_about(digest, store, trust))
    return CertificateEntry(digest, statement, status(statement, about, at), about)


def find(store: Store, start: str) -> str:
    """Return the one published digest that begins like this."""
    found = [digest for digest in published(store) if digest.startswith(start)] if len(start) >= _SHORTEST else []
    if len(found) != 1:
        raise DataError(
            "there is no such certificate in this store" if not found else "several certificates begin like this",
            value=start,
            hint=f"`mbd certificate list` shows those that there are; give at least {_SHORTEST} letters",
        )
    return found[0]


def read_statement(store: Store, digest: str, trust: Trust) -> AnyStatement:
    """Return what a published envelope states, its signatures and its place in the log verified."""
    envelope = store.read(certificate_name(digest), sha256=digest)
    try:
        proof: bytes | None = store.read(proof_name(digest))
    except NotThereError:
        proof = None
    log = log_finding(envelope, proof, trust)
    if problems := [check.reason for check in log.checks if check.outcome != "passed"]:
        raise VerificationError(problems[0], file=certificate_name(digest))
    parsed = Envelope.parse(envelope)
    statement = parse_payload(parsed.content)
    verify_envelope(parsed, trust, statement.predicate.issued, log.logged)
    return statement

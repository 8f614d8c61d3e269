"""The certificates of a store and their states.

    revoked       it was withdrawn
    superseded    another certificate has replaced it
    refuted       the gate refused a later audit of its model
    overdue       the date of the next audit has passed, and no audit has set a later one
    valid         none of these

A state follows from the statements about a certificate (revocation, supersession, re-audit, purge). They are envelopes
like the certificate itself, signed and logged, and are found by the markers below `about/`. A marker whose envelope
cannot be verified is a problem of the certificate, not silence.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from mbd.certificate.layout import CERTIFICATES, about_prefix, certificate_name
from mbd.certificate.log.checkpoint import verify_checkpoint
from mbd.certificate.log.hashing import leaf_hash
from mbd.certificate.log.inclusion import Inclusion
from mbd.certificate.log.proof import inclusion_proof, root_by_inclusion
from mbd.certificate.log.reader import Log
from mbd.certificate.log.tiles import node_in
from mbd.certificate.reader import read_published
from mbd.certificate.trust import Trust
from mbd.certificate.verdict import Check, failed, not_checkable, passed
from mbd.errors import DataError, UsageError, VerificationError
from mbd.formats.predicate import Erasure
from mbd.formats.statement import (
    CERTIFICATE,
    AnyStatement,
    DeletionStatement,
    PurgeStatement,
    ReauditStatement,
    RevocationStatement,
    SupersessionStatement,
)
from mbd.records import Record
from mbd.storage.store import Store

CertificateState = Literal["valid", "overdue", "refuted", "superseded", "revoked"]
CERTIFICATE_STATES: tuple[CertificateState, ...] = get_args(CertificateState)
Effect = Literal["revoked", "superseded", "refuted", "passed", "none"]
"""what a statement does to the certificate that it is about; `passed`: an audit that sets the next date"""

CONSISTENCY, STATE = "log consistency", "not superseded or revoked"
_OFFLINE = "only the store it was published in knows; give its URL"
_SHORTEST = 6


class Status(Record):
    """The state of a certificate, and why."""

    state: CertificateState
    reason: str
    reaudit_by: datetime
    """by when the model is to be attacked again, as set by the certificate or the last audit that passed"""


@dataclass(frozen=True)
class CertificateEntry:
    """A published certificate that verifies."""

    digest: str
    """SHA-256 of its envelope"""
    statement: DeletionStatement
    status: Status
    about: tuple[AnyStatement, ...]


@dataclass(frozen=True)
class InvalidCertificate:
    """An object below `certificates/` that does not verify."""

    digest: str
    reason: str


def effect_of(statement: AnyStatement) -> Effect:
    """Return what a statement does to the state of the certificate that it is about."""
    match statement:
        case RevocationStatement():
            return "revoked"
        case DeletionStatement() | SupersessionStatement():
            return "superseded"
        case ReauditStatement():
            return "passed" if statement.predicate.passed else "refuted"
        case _:
            return "none"


def state_from(effects: Collection[Effect], *, overdue: bool) -> CertificateState:
    """Return the state of a certificate: the gravest effect decides."""
    effects = set(effects)
    if "revoked" in effects:
        return "revoked"
    if "superseded" in effects:
        return "superseded"
    if "refuted" in effects:
        return "refuted"
    return "overdue" if overdue else "valid"


def status_of(certificate: DeletionStatement, about: Iterable[AnyStatement], at: datetime) -> Status:
    """Return the state of a certificate at a time, from all verified statements about it."""
    about = list(about)
    audits = [s.predicate for s in about if isinstance(s, ReauditStatement)]
    due = max([certificate.predicate.reaudit_by, *(audit.reaudit_by for audit in audits if audit.passed)])
    state = state_from([effect_of(statement) for statement in about], overdue=at > due)
    decisive = next((statement for statement in about if effect_of(statement) == state), None)
    return Status(state=state, reason=_reason(state, decisive, due), reaudit_by=due)


def _reason(state: CertificateState, decisive: AnyStatement | None, due: datetime) -> str:
    day = f"{decisive.predicate.issued:%Y-%m-%d}" if decisive else ""
    match decisive:
        case RevocationStatement():
            return f"revoked {day}: {decisive.predicate.reason}"
        case DeletionStatement() | SupersessionStatement():
            return f"replaced {day} by another certificate"
        case ReauditStatement():
            return f"refused by the audit of {day}: {'; '.join(decisive.predicate.leakage.reasons)}"
    again = "it was to be attacked again" if state == "overdue" else "to be attacked again"
    return f"{again} by {due:%Y-%m-%d}"


def last_erasure(statements: Iterable[AnyStatement]) -> Erasure | None:
    """Return the claim of the last purge among statements (in the log's order); None if there was none."""
    purges = [s.predicate.erasure for s in statements if isinstance(s, PurgeStatement)]
    return purges[-1] if purges else None


def statements_about(digest: str, store: Store, trust: Trust) -> list[AnyStatement]:
    """Return every statement about a certificate, verified, in the log's order.

    Raises:
        VerificationError: One of them cannot be verified, or is about something else.

    """
    prefix, found = about_prefix(digest), list[tuple[int, AnyStatement]]()
    for marker in store.list(prefix):
        name = marker.name.removeprefix(prefix)
        read = read_published(store, name, trust)
        statement = read.require(certificate_name(name))
        if subject_certificate(statement) != digest:
            raise VerificationError("the statement is about another certificate", file=certificate_name(name))
        found.append((read.logged.index if read.logged else -1, statement))
    return [statement for _, statement in sorted(found, key=lambda pair: pair[0])]


def subject_certificate(statement: AnyStatement) -> str | None:
    """Return the certificate that a statement is about: for a certificate, the one that it replaces."""
    return statement.predicate.supersedes if isinstance(statement, DeletionStatement) else statement.certificate


# The certificates of a store


def published(store: Store) -> Iterator[str]:
    """Yield the SHA-256 of every published envelope, in order."""
    for found in store.list(f"{CERTIFICATES}/"):
        _, digest, file = (*found.name.split("/"), "", "")[:3]
        if file == CERTIFICATE:
            yield digest


def entries(store: Store, trust: Trust, at: datetime) -> Iterator[CertificateEntry | InvalidCertificate]:
    """Yield every certificate of a store, verified."""
    for digest in published(store):
        try:
            statement = read_published(store, digest, trust, at=at).statement
            if isinstance(statement, DeletionStatement):
                yield _entry(store, digest, statement, trust, at)
        except (VerificationError, DataError) as error:
            yield InvalidCertificate(digest, error.problem)


def entry(store: Store, start: str, trust: Trust, at: datetime) -> CertificateEntry:
    """Return one certificate, named by its digest or the start of it."""
    digest = find(store, start)
    statement = read_published(store, digest, trust, at=at).statement
    if not isinstance(statement, DeletionStatement):
        raise UsageError("this is not a certificate, but a statement about one", value=digest)
    return _entry(store, digest, statement, trust, at)


def _entry(store: Store, digest: str, statement: DeletionStatement, trust: Trust, at: datetime) -> CertificateEntry:
    about = tuple(statements_about(digest, store, trust))
    return CertificateEntry(digest, statement, status_of(statement, about, at), about)


def find(store: Store, start: str) -> str:
    """Return the one published digest that begins with `start`."""
    found = [digest for digest in published(store) if digest.startswith(start)] if len(start) >= _SHORTEST else []
    if len(found) != 1:
        raise DataError(
            "there is no such certificate in this store" if not found else "several certificates begin like this",
            value=start,
            hint=f"`mbd certificate list` lists them; give a unique prefix of at least {_SHORTEST} digits",
        )
    return found[0]


# Checks of `mbd verify` that need the store


@dataclass(frozen=True)
class StoreStatus:
    """What the store says of a certificate."""

    checks: tuple[Check, ...]
    reaudit_by: datetime | None = None
    """by when to audit again, as set by the last audit that passed"""
    erasure: Erasure | None = None
    """what the last purge claims about copies of the old weights"""


def store_status(
    certificate: DeletionStatement,
    digest: str,
    inclusion: Inclusion | None,
    store: Store | None,
    trust: Trust | None,
    at: datetime,
) -> StoreStatus:
    """Check that the store's log still has the certificate, and its state; not checkable without store or proof."""
    if store is None:
        return StoreStatus(tuple(not_checkable(name, _OFFLINE) for name in (CONSISTENCY, STATE)))
    if trust is None or inclusion is None:
        reason = "the certificate is not known to be in the log"
        return StoreStatus(tuple(not_checkable(name, reason) for name in (CONSISTENCY, STATE)))
    consistency = _consistency(digest, inclusion, store, trust)
    try:
        statements = statements_about(digest, store, trust)
    except (VerificationError, DataError) as error:
        reason = f"a statement about it cannot be verified: {error.problem}"
        return StoreStatus((consistency, failed(STATE, reason)))
    status = status_of(certificate, statements, at)
    if status.state in {"revoked", "superseded", "refuted"}:
        state = failed(STATE, f"it was {status.reason}")
    else:
        state = passed(STATE, "the store holds no statement against it")
    return StoreStatus((consistency, state), status.reaudit_by, last_erasure(statements))


def _consistency(digest: str, inclusion: Inclusion, store: Store, trust: Trust) -> Check:
    """Check that today's log continues the one in the proof, and that its tiles lead from the entry to its head."""
    leaf, index = bytes.fromhex(digest), inclusion.index
    try:
        log = Log(store, trust)
        log.consistency(verify_checkpoint(inclusion.checkpoint, trust))
        path = inclusion_proof(node_in(log.hashes), index, log.size)
        root = root_by_inclusion(leaf_hash(leaf), index, log.size, path)
        if root != log.head.root or log.entry(index) != leaf:
            return failed(CONSISTENCY, "the store's log no longer has this certificate at its index")
    except (VerificationError, DataError) as error:
        return failed(CONSISTENCY, error.problem)
    return passed(CONSISTENCY, f"the log now has {log.size} entries; the first {inclusion.tree_size} are unchanged")

"""What the store knows of a certificate: whether the log still is what it was, and whether the certificate stands.

Statements about a certificate (revocation, supersession, re-audit, purge) are envelopes like the certificate itself:
signed, in the log, and found by the signs below `about/`. One that cannot be verified is no statement, but a reason to
ask.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from mbd.certificate.envelope import verify_envelope
from mbd.certificate.layout import about_prefix, certificate_name, proof_name
from mbd.certificate.log.checkpoint import verify_checkpoint
from mbd.certificate.log.hashing import leaf_hash
from mbd.certificate.log.inclusion import Inclusion
from mbd.certificate.log.proof import inclusion_proof, root_by_inclusion
from mbd.certificate.log.reader import Log
from mbd.certificate.log.tiles import node_in
from mbd.certificate.status import Status, status
from mbd.certificate.trust import Trust
from mbd.certificate.verify.signing import log_finding, read_envelope
from mbd.certificate.verify.verdict import Check, failed, not_checkable, passed
from mbd.errors import DataError, VerificationError
from mbd.formats.predicate import Erasure
from mbd.formats.statement import AnyStatement, DeletionStatement, PurgeStatement
from mbd.storage.store import Store

CONSISTENCY, STANDING = "log consistency", "not superseded or revoked"
_OFFLINE = "only the store it was published in knows; give its URL"


@dataclass(frozen=True)
class StoreStatus:
    """What was found in the store."""

    checks: tuple[Check, ...]
    reaudit_by: datetime | None = None
    """by when to audit again, as the last audit that it passed has set it"""
    erasure: Erasure | None = None
    """what the last purge claims about copies of the old weights"""


def standing_of(
    certificate: DeletionStatement,
    digest: str,
    inclusion: Inclusion | None,
    store: Store | None,
    trust: Trust | None,
    at: datetime,
) -> StoreStatus:
    """Ask the store; without it, or without a proof that holds, nothing can be said."""
    if store is None:
        return StoreStatus(tuple(not_checkable(name, _OFFLINE) for name in (CONSISTENCY, STANDING)))
    if trust is None or inclusion is None:
        reason = "the certificate is not known to be in the log"
        return StoreStatus(tuple(not_checkable(name, reason) for name in (CONSISTENCY, STANDING)))
    consistency = _consistency(digest, inclusion, store, trust)
    try:
        statements = list(statements_about(digest, store, trust))
    except (VerificationError, DataError) as error:
        reason = f"something is said about it that cannot be verified: {error.problem}"
        return StoreStatus((consistency, failed(STANDING, reason)))
    found = status(certificate, statements, at)
    return StoreStatus((consistency, _standing(found)), found.reaudit_by, last_erasure(statements))


def last_erasure(statements: Iterable[AnyStatement]) -> Erasure | None:
    """Return the claim of the last purge among statements (in the log's order); None if there was none."""
    purges = [s.predicate.erasure for s in statements if isinstance(s, PurgeStatement)]
    return purges[-1] if purges else None


def statements_about(digest: str, store: Store, trust: Trust) -> Iterator[AnyStatement]:
    """Yield every verified statement about a certificate, in the log's order.

    VerificationError for one that cannot be verified.
    """
    prefix, found_at = about_prefix(digest), list[tuple[int, AnyStatement]]()
    for found in store.list(prefix):
        name = found.name.removeprefix(prefix)
        envelope = store.read(certificate_name(name), sha256=name)
        read = read_envelope(envelope)
        log = log_finding(envelope, store.read(proof_name(name)), trust)
        if problems := [check.reason for check in (*read.checks, *log.checks) if check.outcome != "passed"]:
            raise VerificationError(problems[0], file=certificate_name(name))
        if read.envelope is None or read.statement is None or not _is_about(read.statement, digest):
            raise VerificationError("it is about something else", file=certificate_name(name))
        verify_envelope(read.envelope, trust, read.statement.predicate.issued, log.logged)
        found_at.append((log.inclusion.index if log.inclusion else -1, read.statement))
    yield from (statement for _, statement in sorted(found_at, key=lambda pair: pair[0]))


def _consistency(digest: str, inclusion: Inclusion, store: Store, trust: Trust) -> Check:
    """Check that today's log continues the one in the proof, and that its tiles lead from the entry to its head."""
    leaf, place = bytes.fromhex(digest), inclusion.index
    try:
        log = Log(store, trust)
        log.consistency(verify_checkpoint(inclusion.checkpoint, trust))
        path = inclusion_proof(node_in(log.hashes), place, log.size)
        root = root_by_inclusion(leaf_hash(leaf), place, log.size, path)
        if root != log.head.root or log.entry(place) != leaf:
            return failed(CONSISTENCY, "the store's log does not have this certificate at its place any more")
    except (VerificationError, DataError) as error:
        return failed(CONSISTENCY, error.problem)
    return passed(
        CONSISTENCY, f"the log has {log.size} entries by now, and the first {inclusion.tree_size} are the same"
    )


def _standing(found: Status) -> Check:
    if found.state in {"revoked", "superseded", "refuted"}:
        return failed(STANDING, f"it was {found.reason}")
    return passed(STANDING, "the store holds no statement against it")


def _is_about(statement: AnyStatement, digest: str) -> bool:
    if isinstance(statement, DeletionStatement):
        return statement.predicate.supersedes == digest
    return statement.certificate == digest

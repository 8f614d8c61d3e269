"""The state of a certificate, as the log says, and the checks of `mbd verify` that need the store.

    revoked       it was withdrawn
    refuted       the gate refused a later audit of its model
    superseded    another certificate has replaced it
    outdated      its model takes a modality that is revoked for the model's name, or has seen recordings that were
                  deleted for a person since; or a certificate is in doubt with another one of its lineage
    unknown       the log cannot be read completely, and what is missing could be about it
    overdue       the date of the next audit has passed, and no audit has set a later one
    valid         none of these

A state follows from the statements about a certificate (revocation, supersession, re-audit). They are envelopes like
the certificate itself, signed and logged, and are read in the log's order (:mod:`mbd.history.replay`).
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from mbd.errors import DataError, VerificationError
from mbd.formats.layout import CERTIFICATES
from mbd.formats.predicate import Erasure
from mbd.formats.statement import PurgeStatement
from mbd.formats.verdict import Decision
from mbd.history.facts import CertificateFacts, RegistrationFacts, StatementFacts
from mbd.history.history import MAX_AGE, History
from mbd.history.replay import read_history
from mbd.log.checkpoint import Inclusion, verify_checkpoint
from mbd.log.reader import Log
from mbd.records import Record
from mbd.storage.store import Store, StoreError
from mbd.trust.trust_file import CLOCKS_DIFFER_BY, Trust
from mbd.verifier.verdict import (
    CONSISTENCY,
    REPLACEMENT,
    WITHDRAWAL,
    Check,
    StoreStatus,
    Successor,
    failed,
    not_checkable,
    passed,
    status_without_store,
)

CertificateState = Literal["valid", "overdue", "unknown", "outdated", "superseded", "refuted", "revoked"]

STATE_VERDICTS: dict[CertificateState, Decision] = {
    "valid": "verified",
    "overdue": "not verified",
    "unknown": "not verified",
    "outdated": "replaced",
    "superseded": "replaced",
    "refuted": "withdrawn",
    "revoked": "withdrawn",
}
"""the verdict that each state leads to, where it is known that what was deleted is kept"""
_WORDS: dict[CertificateState, str] = {
    "revoked": "revoked {time:%Y-%m-%d}: {reason}",
    "refuted": "refused by the audit of {time:%Y-%m-%d}: {reason}",
    "superseded": "replaced {time:%Y-%m-%d} by another certificate",
}
"""what a statement of this effect says; the gravest first"""


class Status(Record):
    """The state of a certificate, and why."""

    state: CertificateState
    decision: Decision
    """the verdict on it, as far as the log says"""
    reason: str
    reaudit_by: datetime
    """by when the model is to be attacked again, as set by the certificate or the last audit that passed"""
    successor: Successor | None = None
    """the release that has taken the place of its model; null: none has"""


def reaudit_by(certificate: CertificateFacts, about: Iterable[StatementFacts]) -> datetime:
    """Return when the next audit is due, as set by the certificate or the last audit that passed."""
    audits = [s.reaudit_by for s in about if s.effect == "passed" and s.reaudit_by is not None]
    return max([certificate.reaudit_by, *audits])


def status_in(
    history: History,
    certificate: CertificateFacts,
    at: datetime,
    problem: str | None = None,
    *,
    max_age: timedelta | None = MAX_AGE,
) -> Status:
    """Return the state of a certificate at a time as a history has it: the gravest of those that apply, and why.

    Args:
        history: What the log says.
        certificate: One of its certificates.
        at: The time.
        problem: Another reason to doubt the history.
        max_age: How old the log's checkpoint may be; an older one may hide later statements. None: any age.

    """
    problem, lost = problem or history.problem(at, max_age), history.model(certificate.model).lost
    state, words, time, reason = next(_states(history, certificate, at, problem))
    replaced, kept = STATE_VERDICTS[state] == "replaced", lost.get(certificate.digest)
    return Status(
        state=state,
        decision=_decision(state, problem or kept),
        reason=words.format(time=time, reason=reason) + (f"; {kept}" if kept and replaced else ""),
        reaudit_by=reaudit_by(certificate, history.about(certificate.digest)),
        successor=_find_successor(history, certificate) if replaced else None,
    )


def _decision(state: CertificateState, doubt: str | None) -> Decision:
    """Return the verdict that a state leads to; `doubt`: why it cannot be known whether what was deleted is kept."""
    return "not verified" if doubt and STATE_VERDICTS[state] == "replaced" else STATE_VERDICTS[state]


def _states(
    history: History, certificate: CertificateFacts, at: datetime, problem: str | None
) -> Iterator[tuple[CertificateState, str, datetime, str]]:
    """Yield the states that apply, the gravest first, and why: words, with the time and the reason to put into them.

    `problem` says why there may be more statements about the certificate than are known.
    """
    about = history.about(certificate.digest)
    for state, words in _WORDS.items():
        for statement in about:
            if statement.effect == state:
                yield state, words, statement.issued, statement.reason
    if outdated := history.model(certificate.model).problem(certificate):
        yield "outdated", "{reason}", at, outdated
    if certificate.issued > at + CLOCKS_DIFFER_BY:
        yield "unknown", "its signing time is in the future, {time:%Y-%m-%d %H:%M:%SZ}", certificate.issued, ""
    if problem:
        yield "unknown", "{reason}", at, problem
    attacked, due = certificate.scope == "modalities", reaudit_by(certificate, about)
    if at > due:
        before = "the next audit was due by" if attacked else "it held until"
        yield "overdue", before + " {time:%Y-%m-%d}", due, ""
    until = "next audit by" if attacked else "holds until"
    again = (f"; {', '.join(s.modalities)} reinstated {s.issued:%Y-%m-%d}" for s in about if s.modalities)
    yield "valid", until + " {time:%Y-%m-%d}{reason}", due, "".join(again)


def _find_successor(history: History, certificate: CertificateFacts) -> Successor | None:
    """Return the current release of the certificate's name, or else the newest one, if it is a later one."""
    model = history.model(certificate.model)
    first_later = bisect_right(model.released, certificate.index, key=lambda release: release.index)
    if first_later == len(model.released):
        return None
    newest = model.current if model.current and model.current.index > certificate.index else model.released[-1]
    return Successor(
        kind="registration" if isinstance(newest, RegistrationFacts) else "certificate",
        digest=newest.digest,
        address=f"{history.store.url}/{CERTIFICATES}/{newest.digest}",
        current=newest is model.current,
        releases=bisect_right(model.released, newest.index, key=lambda release: release.index) - first_later,
    )


def states_in(history: History, at: datetime, problem: str | None) -> dict[str, tuple[CertificateState, Decision]]:
    """Return the state of each certificate of a history at a time and the verdict that it leads to, by digest.

    Args:
        history: What the log says.
        at: The time.
        problem: Why there may be more statements than are known.

    """
    states = {}
    for certificate in history.certificates.values():
        state, lost = next(_states(history, certificate, at, problem))[0], history.model(certificate.model).lost
        states[certificate.digest] = state, _decision(state, problem or lost.get(certificate.digest))
    return states


# Checks of `mbd verify` that need the store


def check_status(
    digest: str,
    inclusion: Inclusion | None,
    store: Store,
    trust: Trust | None,
    at: datetime,
    *,
    history: History | None = None,
    max_age: timedelta | None = MAX_AGE,
) -> StoreStatus:
    """Check that the store's log has the certificate, and what it says of it; not checkable without proof.

    Args:
        digest: SHA-256 of the envelope.
        inclusion: The proof of inclusion, if it holds.
        store: The store that it was published in.
        trust: Who is trusted.
        at: The time that counts as now.
        history: What the store's log says, if it was read before.
        max_age: How old the log's checkpoint may be.

    """
    if trust is None or inclusion is None:
        return status_without_store("the certificate is not known to be in the log")
    try:
        history = history or read_history(store, trust)
    except (VerificationError, DataError) as error:
        unread = status_without_store("the log cannot be read")
        return StoreStatus((failed(CONSISTENCY, error.problem, "not verified"), *unread.checks[1:]))
    except StoreError as error:
        return status_without_store(f"the store did not answer: {error.problem}")
    consistency = _consistency(history, digest, inclusion, trust)
    facts = history.certificates.get(digest)
    if facts is None:
        return StoreStatus((consistency, *status_without_store("the log does not have this certificate").checks[1:]))
    status = status_in(history, facts, at, max_age=max_age)
    force = _in_force(status, history.problem(at, max_age))
    return StoreStatus((consistency, *force), status.reaudit_by, last_erasure(history, digest), status.successor)


def _in_force(status: Status, problem: str | None) -> tuple[Check, Check]:
    """Check that a certificate was not withdrawn, and that its model was not replaced."""
    if status.decision == "withdrawn":
        withdrawn = failed(WITHDRAWAL, f"it was {status.reason}", "withdrawn")
        return withdrawn, not_checkable(REPLACEMENT, "it was withdrawn")
    if problem:
        return not_checkable(WITHDRAWAL, problem, required=True), not_checkable(REPLACEMENT, problem, required=True)
    in_force = passed(WITHDRAWAL, "the log holds no statement that withdraws it")
    if STATE_VERDICTS[status.state] != "replaced":
        return in_force, passed(REPLACEMENT, "its model holds nothing that was revoked since, and nothing replaces it")
    reason = f"it was {status.reason}" if status.state == "superseded" else status.reason
    return in_force, failed(REPLACEMENT, reason, status.decision)


def last_erasure(history: History, digest: str) -> Erasure | None:
    """Return the claim of the last purge of a certificate's old weights; None if there was none."""
    purges = [s.digest for s in history.about(digest) if s.kind == "purge"]
    if not purges:
        return None
    try:
        statement = history.statement(purges[-1])
    except (VerificationError, DataError):
        return None  # it is not in the store at the moment, and less is claimed without it
    return statement.predicate.erasure if isinstance(statement, PurgeStatement) else None


def find_proof(
    digest: str, proof: bytes | None, store: Store, trust: Trust, history: History | None = None
) -> bytes | None:
    """Return the proof of a certificate, made from the log of a store if there is none, or a revoked key has signed it.

    Any other proof is returned as it is. So the log decides, whichever proof lies beside a certificate, and what was
    logged a moment ago counts before its proof is written.
    """
    if proof is not None and not any(key.revoked for key in trust.keys_for("log")):
        return proof
    leaf = bytes.fromhex(digest)
    try:
        if proof is not None:
            inclusion = Inclusion.from_bytes(proof, "proof of inclusion")
            inclusion.verify(leaf, trust.as_if_none_revoked())
            with suppress(VerificationError):
                inclusion.verify(leaf, trust)
                return proof
        history = history or read_history(store, trust)
        index = history.indices.get(digest)
        return proof if index is None else Log(store, trust, history.head).inclusion(index, leaf).to_bytes()
    except (VerificationError, DataError, StoreError):
        return proof


def _consistency(history: History, digest: str, inclusion: Inclusion, trust: Trust) -> Check:
    """Check that today's log continues the one in the proof, and still has the certificate where it was."""
    try:
        log = Log(history.store, trust, history.head)
        log.check_continues(verify_checkpoint(inclusion.checkpoint, trust))
    except (VerificationError, DataError) as error:
        return failed(CONSISTENCY, error.problem, "not verified")
    if history.indices.get(digest) != inclusion.index:
        return failed(CONSISTENCY, "the store's log no longer has this certificate at its index", "not verified")
    return passed(
        CONSISTENCY, f"the log of size {inclusion.tree_size} is unchanged in the current one, of size {log.size}"
    )

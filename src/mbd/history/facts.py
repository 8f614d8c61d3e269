"""The few fields that are kept of each statement in the log, and what it does to the certificate that it is about.

An audit counts as passed only by its own numbers: its attacks were made on the certified weights, they were after
everything that was deleted, the gate decides the same again, and the next date is not out of bounds. One
that says otherwise moves no date.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.leakage import AuditSummary
from mbd.formats.predicate import LONGEST_INTERVAL
from mbd.formats.statement import (
    AnyStatement,
    DeletionStatement,
    NothingHeldStatement,
    PurgeStatement,
    ReauditStatement,
    RegistrationStatement,
    ReinstatementStatement,
    RevocationStatement,
)
from mbd.formats.strength import shortfalls
from mbd.formats.verdict import Decision
from mbd.verifier.gate import check_gate

Effect = Literal["revoked", "superseded", "refuted", "passed", "overruled", "none"]
"""what a statement does to the certificate that it is about; `passed`: an audit that sets the next date; `overruled`:
what it revoked may be taken again, and what it says of its own model stays true"""
Kind = Literal["supersession", "revocation", "reaudit", "purge", "reinstatement", "nothing-held"]


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A certificate in the log."""

    index: int
    digest: str
    """SHA-256 of its envelope"""
    model: str
    kind: str
    """of its guarantee"""
    scope: str
    modalities: tuple[str, ...]
    """what it says was deleted"""
    subjects: tuple[str, ...]
    """commitments to the persons whose recordings were deleted; none: those of all"""
    revoked: tuple[str, ...]
    """all modalities that its lineage had revoked by then"""
    inputs: tuple[str, ...]
    """modalities that its model takes"""
    weights: str
    """SHA-256 of its model's weights"""
    epsilon: float | None
    issued: datetime
    reaudit_by: datetime
    supersedes: str | None
    spent: float | None
    """ε that its lineage has spent; None without a budget"""
    limit: float | None
    run_id: str | None
    """the pipeline run that issued it"""


@dataclass(frozen=True, slots=True)
class ReferenceFacts:
    """A registered reference: a model that never saw some modalities of the registered one."""

    inputs: tuple[str, ...]
    """modalities that it takes: it has seen no other"""
    weights: str
    """SHA-256 of its weights"""
    record: str
    """SHA-256 of its `model.json`"""


@dataclass(frozen=True, slots=True)
class RegistrationFacts:
    """A registered model in the log."""

    index: int
    digest: str
    """SHA-256 of its envelope"""
    model: str
    inputs: tuple[str, ...]
    """modalities that it takes"""
    sees: tuple[str, ...]
    """modalities that its training has seen"""
    weights: str
    """SHA-256 of its weights"""
    record: str
    """SHA-256 of its `model.json`"""
    data: str
    """digest of its data, or a commitment to it"""
    dvc_revision: str | None
    left_out: tuple[str, ...]
    """certificates of persons' deletions that its training has respected"""
    references: tuple[ReferenceFacts, ...]
    promoted: bool
    previous: str | None
    metrics: dict[str, float]
    """on the valid split"""
    issued: datetime
    run_id: str | None


Release = CertificateFacts | RegistrationFacts
"""a model that was published under a name: registered, or certified after a deletion"""


@dataclass(frozen=True, slots=True)
class StatementFacts:
    """A statement about a certificate in the log; a certificate that names another in `supersedes` makes one, too."""

    index: int
    digest: str
    kind: Kind
    about: str
    """SHA-256 of the envelope of the certificate"""
    effect: Effect
    reason: str
    """why, in words"""
    issued: datetime
    reaudit_by: datetime | None = None
    """of an audit: by when the next one is due"""
    run_id: str | None = None
    """of an audit: the pipeline run that made it"""
    tombstones: str | None = None
    """of a purge: SHA-256 of the list of purged files"""
    modalities: tuple[str, ...] = ()
    """of a reinstatement: what may be taken again"""


@dataclass(frozen=True, slots=True)
class EntryFinding:
    """An entry of the log that does not count, or that could not be read."""

    index: int
    digest: str
    reason: str
    blocks: bool
    """whether it could be a statement about any certificate, so that no state can be known"""
    verdict: Decision = "not verified"
    """on what the store holds of it"""


def certificate_facts(index: int, digest: str, statement: DeletionStatement) -> CertificateFacts:
    """Return what is kept of a certificate."""
    predicate = statement.predicate
    budget = predicate.budget.lineage if predicate.budget else None
    return CertificateFacts(
        index=index,
        digest=digest,
        model=predicate.model,
        kind=predicate.guarantee.kind,
        scope=predicate.deleted.scope,
        modalities=predicate.deleted.modalities,
        subjects=predicate.deleted.subjects,
        revoked=predicate.deleted.revoked,
        inputs=tuple(predicate.structure.inputs),
        weights=statement.digests[WEIGHTS],
        epsilon=predicate.guarantee.epsilon,
        issued=predicate.issued,
        reaudit_by=predicate.reaudit_by,
        supersedes=predicate.supersedes,
        spent=budget.epsilon_after if budget else None,
        limit=budget.limit if budget else None,
        run_id=predicate.lineage.run_id,
    )


def registration_facts(index: int, digest: str, statement: RegistrationStatement) -> RegistrationFacts:
    """Return what is kept of a registration."""
    predicate, inputs = statement.predicate, tuple(statement.predicate.inputs)
    content = predicate.data.content
    return RegistrationFacts(
        index=index,
        digest=digest,
        model=predicate.model,
        inputs=inputs,
        sees=predicate.sees,
        weights=statement.digests[WEIGHTS],
        record=statement.digests[MODEL],
        data=content.sha256 or content.commitment or "",
        dvc_revision=predicate.data.dvc_revision,
        left_out=predicate.left_out,
        references=tuple(
            ReferenceFacts(tuple(m for m in inputs if m not in reference.without), reference.weights, reference.record)
            for reference in predicate.references
        ),
        promoted=predicate.promoted,
        previous=predicate.previous,
        metrics=predicate.evaluation.metrics if predicate.evaluation else {},
        issued=predicate.issued,
        run_id=predicate.run_id,
    )


def statement_facts(
    index: int, digest: str, statement: AnyStatement, about: str, certificate: CertificateFacts | None
) -> StatementFacts:
    """Return what is kept of a statement about a certificate.

    Args:
        index: Its index in the log.
        digest: SHA-256 of its envelope.
        statement: What it states.
        about: SHA-256 of the envelope of the certificate.
        certificate: The certificate as the log has it; None if the log has no such certificate before the statement.

    """
    facts = partial(StatementFacts, index, digest, about=about, issued=statement.predicate.issued)
    match statement:
        case RevocationStatement():
            return facts(kind="revocation", effect="revoked", reason=statement.predicate.reason)
        case ReauditStatement():
            effect, reason = audit_effect(statement, certificate)
            due, run = statement.predicate.reaudit_by, statement.predicate.run_id
            return facts(kind="reaudit", effect=effect, reason=reason, reaudit_by=due, run_id=run)
        case PurgeStatement():
            words, listed = statement.predicate.erasure.words, statement.predicate.tombstones
            return facts(kind="purge", effect="none", reason=words, tombstones=listed)
        case ReinstatementStatement():
            again, reason = statement.predicate.modalities, statement.predicate.reason
            return facts(kind="reinstatement", effect="overruled", reason=reason, modalities=again)
        case NothingHeldStatement():
            return facts(kind="nothing-held", effect="none", reason="nothing of a person was in its data")
    return facts(kind="supersession", effect="superseded", reason="replaced by another certificate")


def audit_effect(statement: ReauditStatement, certificate: CertificateFacts | None) -> tuple[Effect, str]:
    """Return what an audit does to the certificate that it is about, and why."""
    audit = statement.predicate
    if audit.audit.decision == "refused":
        return "refuted", "; ".join(audit.audit.reasons) or "no reason recorded"
    if certificate is None:
        return "none", "the log has no such certificate before it"
    if wrong := audit_problem(audit.audit, certificate):
        return "none", wrong
    if not timedelta(0) < audit.reaudit_by - audit.issued <= LONGEST_INTERVAL:
        return "none", f"the next audit is not due within {LONGEST_INTERVAL.days} days"
    return "passed", "passed by its numbers"


def audit_problem(audit: AuditSummary, certificate: CertificateFacts) -> str | None:
    """Say why an audit that claims to have passed is none of a certificate; None: it is one."""
    if audit.models.get("after") != certificate.weights:
        return "the attacks were made on other weights than the certified ones"
    if not set(certificate.modalities) <= set(audit.modalities) <= {*certificate.modalities, *certificate.revoked}:
        return "the attacks were not after what was deleted"
    if weak := shortfalls(audit, certificate.kind, later=True):
        return f"the audit was too weak: {weak[0].problem}"
    gate = check_gate(audit, certificate.epsilon)
    return None if gate.outcome == "passed" else gate.reason

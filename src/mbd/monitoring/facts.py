"""What the exporter keeps in memory of each object in the store: a few fields, so that 10,000 objects stay small."""

from collections.abc import Iterable
from dataclasses import dataclass

from mbd.certificate.state import CertificateState, Effect, effect_of, state_from
from mbd.formats.request import DeletionRequest, State
from mbd.formats.statement import (
    AnyStatement,
    DeletionStatement,
    ReauditStatement,
)


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A verified certificate; times in seconds since the epoch."""

    digest: str
    model: str
    modalities: tuple[str, ...]
    kind: str
    issued: float
    reaudit_by: float
    supersedes: str | None
    spent: float | None
    """ε that its lineage has spent; None without a budget"""
    limit: float | None


@dataclass(frozen=True, slots=True)
class StatementFacts:
    """A verified statement about a certificate."""

    digest: str
    about: str
    effect: Effect
    issued: float
    reaudit_by: float = 0.0


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """An object that does not verify or cannot be parsed."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request; times in seconds since the epoch."""

    model: str
    modalities: tuple[str, ...]
    state: State
    received: float
    due: float
    reached: tuple[tuple[State, float], ...]
    """when it last entered each of its states"""


def facts_of(digest: str, statement: AnyStatement) -> CertificateFacts | StatementFacts:
    """Return the facts of a statement."""
    if isinstance(statement, DeletionStatement):
        predicate = statement.predicate
        budget = predicate.budget.lineage if predicate.budget else None
        return CertificateFacts(
            digest=digest,
            model=predicate.model,
            modalities=predicate.deleted.modalities,
            kind=predicate.guarantee.kind,
            issued=predicate.issued.timestamp(),
            reaudit_by=predicate.reaudit_by.timestamp(),
            supersedes=predicate.supersedes,
            spent=budget.epsilon_after if budget else None,
            limit=budget.limit if budget else None,
        )
    reaudit = statement.predicate.reaudit_by.timestamp() if isinstance(statement, ReauditStatement) else 0.0
    issued = statement.predicate.issued.timestamp()
    return StatementFacts(digest, statement.certificate, effect_of(statement), issued, reaudit)


def facts_of_request(request: DeletionRequest) -> RequestFacts:
    """Return the facts of a request."""
    return RequestFacts(
        model=request.model,
        modalities=request.modalities,
        state=request.state,
        received=request.received.timestamp(),
        due=request.due.timestamp(),
        reached=tuple({event.state: event.at.timestamp() for event in request.history}.items()),
    )


def reaudit_by(certificate: CertificateFacts, about: Iterable[StatementFacts]) -> float:
    """Return when the next re-audit is due, as set by the certificate or the last audit that passed."""
    return max([certificate.reaudit_by, *(one.reaudit_by for one in about if one.effect == "passed")])


def state_of(certificate: CertificateFacts, about: Iterable[StatementFacts], at: float) -> CertificateState:
    """Return the state of a certificate."""
    about = list(about)
    return state_from([one.effect for one in about], overdue=at > reaudit_by(certificate, about))

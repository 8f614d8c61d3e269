"""What is kept in memory of each request: a few fields, so that 10,000 of them stay small."""

from dataclasses import dataclass

from mbd.formats.request import DeletionRequest, State


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """An object that does not verify or cannot be parsed."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request; times in seconds since the epoch."""

    id: str
    model: str
    modalities: tuple[str, ...]
    state: State
    received: float
    due: float
    certificate: str | None
    events: tuple[tuple[State, float], ...]
    """every state that it entered, and when"""
    of_person: bool = False


def facts_of_request(request: DeletionRequest) -> RequestFacts:
    """Return the facts of a request."""
    return RequestFacts(
        id=request.id,
        model=request.model,
        modalities=request.modalities,
        state=request.state,
        received=request.received.timestamp(),
        due=request.due.timestamp(),
        certificate=request.certificate,
        events=tuple((event.state, event.at.timestamp()) for event in request.history),
        of_person=request.of_person,
    )

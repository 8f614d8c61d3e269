"""What a request says, and how its state may change.

    received → running → certified | refused | failed
    received → cancelled;  failed → running;  running (lease over) → running

Nothing personal is in a request: the requester is a reference that only the people who took the request can resolve.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from mbd.names import Name
from mbd.records import Record

State = Literal["received", "running", "certified", "refused", "failed", "cancelled"]
STATES: tuple[State, ...] = ("received", "running", "certified", "refused", "failed", "cancelled")
OPEN: tuple[State, ...] = ("received", "running", "failed")
"""states in which the request is still owed"""


def _impersonal(text: str) -> str:
    if "@" in text:
        raise ValueError("this looks like an e-mail address; give a reference that says nothing about the person")
    return text


Reference = Annotated[str, Field(max_length=100, pattern=r"^[^\n\r]*$"), AfterValidator(_impersonal)]


BatchId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
RequestId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
ModelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]


class Event(Record):
    """One change of state."""

    at: AwareDatetime
    state: State
    by: str
    """the worker, or the command"""
    note: str = ""


class Lease(Record):
    """Which batch of work a request or a model belongs to, and until when nobody else may take it."""

    worker: str
    until: AwareDatetime
    batch: BatchId
    """the one deletion that carries out all requests of the batch"""


class DeletionRequest(Record):
    """One request and its history."""

    format: Literal["urn:missing-by-design:request:v1"] = "urn:missing-by-design:request:v1"
    id: RequestId
    model: ModelName
    """name under which the model is published (certificate.model)"""
    modalities: Annotated[tuple[Name, ...], Field(min_length=1)]
    reason: Reference = ""
    requester: Reference = ""
    """a reference, never personal data"""
    received: AwareDatetime
    due: AwareDatetime
    state: State = "received"
    lease: Lease | None = None
    certificate: str | None = None
    """SHA-256 of the certificate, once there is one"""
    history: tuple[Event, ...]

    def moved(self, state: State, by: str, at: datetime, note: str = "", **changes: object) -> "DeletionRequest":
        """Return the request in another state, with the event in its history."""
        event = Event(at=at, state=state, by=by, note=note)
        return self.model_copy(update={"state": state, "history": (*self.history, event), "lease": None, **changes})

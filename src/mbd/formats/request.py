"""What a request says, and how its state may change.

    received → running → certified | refused | failed
    received → cancelled;  failed → running;  running (lease over) → running

Nothing personal is in a request: the requester is a reference that only the people who took the request can resolve.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from mbd.names import Name, RelativePath
from mbd.records import Digest, Record

State = Literal["received", "running", "certified", "refused", "failed", "cancelled"]
STATES: tuple[State, ...] = ("received", "running", "certified", "refused", "failed", "cancelled")
OPEN: tuple[State, ...] = ("received", "running", "failed")
"""states in which the request is still open"""


def _impersonal(text: str) -> str:
    if "@" in text:
        raise ValueError("this looks like an e-mail address; give a reference that says nothing about the person")
    return text


Reference = Annotated[str, Field(max_length=100, pattern=r"^[^\n\r]*$"), AfterValidator(_impersonal)]


BatchId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
RequestId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Event(Record):
    """One change of state."""

    at: AwareDatetime
    state: State
    by: str
    """the worker, or the command"""
    note: str = ""


class Lease(Record):
    """Which batch of work a request or a model belongs to, and until when no other worker may take it."""

    worker: str
    until: AwareDatetime
    batch: BatchId
    """the one deletion that carries out all requests of the batch"""


class DeletionRequest(Record):
    """One request and its history."""

    format: Literal["urn:missing-by-design:request:v1"] = "urn:missing-by-design:request:v1"
    id: RequestId
    model: Name
    """name under which the model is published (certificate.model)"""
    modalities: Annotated[tuple[Name, ...], Field(min_length=1)]
    subject: Digest | None = None
    """reference to the person whose recordings are to be deleted, never an id; null: the modalities of all"""
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

    @property
    def kind(self) -> tuple[str, ...]:
        """What requests have in common that one deletion carries out: whole modalities, or a modality of persons."""
        return () if self.subject is None else self.modalities

    def moved(self, state: State, by: str, at: datetime, note: str = "", **changes: object) -> "DeletionRequest":
        """Return the request in another state, with the event in its history."""
        event = Event(at=at, state=state, by=by, note=note)
        return self.model_copy(update={"state": state, "history": (*self.history, event), "lease": None, **changes})


class Files(Record):
    """A model folder in the store: the SHA-256 of each file by name."""

    files: dict[RelativePath, Digest]


class ModelLease(Record):
    """The contents of `models/NAME.json`."""

    format: Literal["urn:missing-by-design:model-lease:v1"] = "urn:missing-by-design:model-lease:v1"
    lease: Lease | None = None


class Decision(Record):
    """The decision about a batch."""

    format: Literal["urn:missing-by-design:batch:v1"] = "urn:missing-by-design:batch:v1"
    batch: BatchId
    outcome: Literal["certified", "abandoned"]
    requests: tuple[RequestId, ...] = ()
    certificate: Digest | None = None
    bundle: Files | None = None
    model: Files | None = None

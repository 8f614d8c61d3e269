"""What a request says, and how its state may change.

    received → running → certified | refused | failed
    received | failed → cancelled;  failed → running;  running (lease over) → running
    certified → failed, if the log no longer shows the deletion

A request counts only with its MAC under the key of requests, which follows from the lineage key. Somebody who can write
to the private part of a store and does not hold the key can neither enter one nor change its state. Nothing personal is
in a request: the requester is a case number that only the people who took the request can resolve.
"""

from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from mbd.errors import DataError
from mbd.records import Digest, Name, Record, RelativePath, Time

State = Literal["received", "running", "certified", "refused", "failed", "cancelled"]
STATES: tuple[State, ...] = ("received", "running", "certified", "refused", "failed", "cancelled")
OPEN: tuple[State, ...] = ("received", "running", "failed")
"""states in which the request is still open"""
REQUESTS = "requests/"
"""where requests are in the private part of a store"""


def _impersonal(text: str) -> str:
    if "@" in text:
        raise ValueError("this looks like an e-mail address; give a case number that says nothing about the person")
    if not text.isprintable():
        raise ValueError("this has characters that are not printed, such as line breaks or changes of direction")
    return text


Impersonal = Annotated[str, Field(max_length=100), AfterValidator(_impersonal)]


BatchId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
RequestId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]


class Event(Record):
    """One change of state, or in the same state a stage that has ended: `deleted`, `evaluated`, `attacked`."""

    at: Time
    state: State
    by: str
    """the worker, or the command"""
    note: str = ""


class Lease(Record):
    """Which batch of work a request or a model belongs to, and until when no other worker may take it."""

    worker: str
    until: Time
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
    """pseudonym of the person whose recordings are to be deleted, never an id; null: the modalities of all"""
    reason: Impersonal = ""
    requester: Impersonal = ""
    """a case number, never personal data"""
    received: Time
    due: Time
    state: State = "received"
    lease: Lease | None = None
    certificate: str | None = None
    """SHA-256 of the certificate, once there is one"""
    history: tuple[Event, ...]
    mac: Digest | None = None
    """HMAC-SHA-256 of all else, under the key of requests; null or wrong: it was written without it"""

    @property
    def of_person(self) -> bool:
        """Whether it is about the recordings of one person."""
        return self.subject is not None

    @property
    def kind(self) -> tuple[str, ...]:
        """What requests have in common that one deletion carries out: whole modalities, or a modality of persons."""
        return () if self.subject is None else self.modalities

    @model_validator(mode="after")
    def _due_after_it_was_received(self) -> Self:
        if self.due < self.received:
            raise ValueError("it is due before it was received")
        return self

    def moved(self, state: State, by: str, at: datetime, note: str = "", **changes: object) -> "DeletionRequest":
        """Return the request in another state, with the event in its history."""
        event = Event(at=at, state=state, by=by, note=note)
        return self.model_copy(update={"state": state, "history": (*self.history, event), "lease": None, **changes})

    @property
    def authenticated(self) -> bytes:
        """What the MAC is about."""
        return self.model_copy(update={"mac": None}).to_bytes()

    def noted(self, note: str, by: str, at: datetime) -> "DeletionRequest":
        """Return the request in the same state, with a stage of the work that has ended in its history."""
        return self.moved(self.state, by, at, note, lease=self.lease)


def _no_file_is_a_folder(files: dict[str, str]) -> dict[str, str]:
    for name in files:
        if folder_name := next((str(folder) for folder in PurePosixPath(name).parents if str(folder) in files), None):
            raise ValueError(f"{folder_name!r} is a file, and a folder of {name!r}")
    return files


class Files(Record):
    """A model folder in the store: the SHA-256 of each file by name."""

    files: Annotated[dict[RelativePath, Digest], AfterValidator(_no_file_is_a_folder)]


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


def request_name(identifier: str) -> str:
    """Return the name of a request's object in the private part of a store."""
    return f"{REQUESTS}{identifier}.json"


def parse_request(content: bytes, name: str) -> DeletionRequest:
    """Return the request in the object `name`; DataError if it is none, or that of another object."""
    hint = "restore the object from its last version, or remove it"
    request = DeletionRequest.from_bytes(content, "request", file=name, hint=hint)
    if request_name(request.id) != name:
        raise DataError("the request belongs to another object", file=name, key="id", value=request.id, hint=hint)
    return request

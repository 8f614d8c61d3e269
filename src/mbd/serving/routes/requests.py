"""Deletion requests: enter, look at, list, cancel."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import ConfigDict, Field, SecretStr
from pydantic.config import JsonDict

from mbd.errors import UsageError
from mbd.formats.request import OPEN, DeletionRequest, Impersonal, RequestId, State
from mbd.history.history import History
from mbd.history.lineage import keep_subject
from mbd.monitoring.store_scanner import RequestFacts, facts_of_request, proven
from mbd.production.request_store import refuse_several
from mbd.records import Name
from mbd.serving.identity import Identity, role
from mbd.serving.problems import ApiError, View
from mbd.serving.routes import Limit, Serving, Words, problems
from mbd.storage.store import NotThereError

router = APIRouter(tags=["requests"])
MOST_MODALITIES = 64


_EXAMPLE: JsonDict = {"model": "sentiment", "modalities": ["audio"], "subject": "speaker-17", "requester": "case-17"}


class NewRequest(View):
    """A request to delete modalities from a model."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    model: Name
    """name of the model"""
    modalities: Annotated[list[Name], Field(min_length=1, max_length=MOST_MODALITIES)]
    """what the model has to forget"""
    subject: Annotated[SecretStr, Field(min_length=1, max_length=200)] | None = None
    """id of the person whose recordings are to be deleted, encrypted before it is stored; null: those of all"""
    reason: Impersonal = ""
    """why, in a few words; no names of persons"""
    requester: Impersonal = ""
    """a case number that only those who took the request can resolve; no personal data"""


class RequestEventView(View):
    """One change of state."""

    at: datetime
    state: State
    note: Words


class RequestSummary(View):
    """A request in a list."""

    id: RequestId
    model: str
    modalities: list[str]
    requester: str
    """the case number"""
    of_person: bool
    """whether it is about the recordings of one person"""
    state: State
    received: datetime
    due: datetime
    certificate: str | None


class RequestView(RequestSummary):
    """A request and its history."""

    reason: str
    history: list[RequestEventView]


class RequestPage(View):
    """A page of requests, nearest deadline first."""

    requests: list[RequestSummary]
    next: str | None
    """value of `after` for the next page; null: this is the last"""


def view(request: DeletionRequest, history: History, identity: Identity) -> RequestView:
    """Return what a client sees of a request: not the workers' names, no paths, and no claim that lacks proof.

    What became of a person's request says whether they are in the data. Who may only submit sees that it was received.
    """
    if request.of_person and not identity.roles & {"read", "operate"}:
        first = request.history[0]
        request = request.model_copy(update={"state": first.state, "certificate": None, "history": (first,)})
    facts = proven(facts_of_request(request), history)
    shown = request.history if facts.state == request.state else request.history[:-1]
    return RequestView(
        **RequestSummary.model_validate(facts).model_dump(),
        reason=request.reason,
        history=[RequestEventView(at=e.at, state=e.state, note=e.note) for e in shown],
    )


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="the same key again makes no second request; another key for another request",
    ),
]
Identifier = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$", description="id of the request")]


@router.post("/requests", status_code=201, responses=problems(400, 401, 403, 507))
def submit(
    new: NewRequest,
    service: Serving,
    response: Response,
    identity: Annotated[Identity, role("submit")],
    key: IdempotencyKey = None,
) -> RequestView:
    """Enter a request. It is due after `requests.due_days`."""
    service.check_request(new.model, new.modalities)
    with service.writing():
        subject = _pseudonym(service, new, new.subject.get_secret_value()) if new.subject else None
        request = service.requests.submit(
            new.model,
            new.modalities,
            subject=subject,
            due_days=service.params.requests.due_days,
            reason=new.reason,
            requester=new.requester,
            # keys of different clients must not meet
            token=f"http {identity.name}\n{key}" if key else None,
        )
    service.written(request)
    response.headers["Location"] = f"/requests/{request.id}"
    return view(request, service.history, identity)


@router.get("/requests", responses=problems(401, 403), dependencies=[role("read")])
def list_requests(
    service: Serving,
    state: Annotated[list[State], Query(max_length=6, description="only in these states")] = [],  # noqa: B006
    model: Annotated[str | None, Query(max_length=100)] = None,
    modality: Annotated[str | None, Query(max_length=100)] = None,
    text: Annotated[str, Query(max_length=100, description="in the id or the case number")] = "",
    only_open: Annotated[bool, Query(alias="open", description="only open requests")] = False,
    limit: Limit = 50,
    after: Annotated[str | None, Query(max_length=100, description="`next` of the page before")] = None,
) -> RequestPage:
    """List requests, nearest deadline first, as of the last scan of the store."""
    _ = service.snapshot  # 503 before the first scan: an empty list would be wrong

    def wanted(facts: RequestFacts) -> bool:
        return (
            (not state or facts.state in state)
            and (not only_open or facts.state in OPEN)
            and model in (None, facts.model)
            and (modality is None or modality in facts.modalities)
            and (text.casefold() in facts.id or text.casefold() in facts.requester.casefold())
        )

    requests, following = service.index.page(wanted, limit, after)
    return RequestPage(requests=[RequestSummary.model_validate(facts) for facts in requests], next=following)


@router.get("/requests/{request_id}", responses=problems(401, 403, 404))
def show_request(
    request_id: Identifier, service: Serving, identity: Annotated[Identity, role("read", "submit")]
) -> RequestView:
    """Return a request and its history, as the store has it now."""
    try:
        return view(service.requests.get(request_id), service.history, identity)
    except NotThereError as error:
        raise _unknown() from error


@router.post("/requests/{request_id}/cancel", responses=problems(401, 403, 404, 409, 507))
def cancel(request_id: Identifier, service: Serving, identity: Annotated[Identity, role("operate")]) -> RequestView:
    """Cancel a request that no worker has started."""
    try:
        with service.writing():
            request = service.requests.cancel(request_id)
    except NotThereError as error:
        raise _unknown() from error
    except UsageError as error:
        raise ApiError(409, error.problem) from error
    service.written(request)
    return view(request, service.history, identity)


def _pseudonym(service: Serving, new: NewRequest, subject: str) -> str:
    """Return the pseudonym of the person of a request; an ApiError if none can be made here."""
    if service.persons is None or new.model != service.params.certificate.model:
        raise ApiError(
            422,
            "persons' requests are not taken here for this model",
            key="subject",
            hint="enter it with `mbd request submit --subject`, where the data and the lineage key are",
        )
    refuse_several(new.modalities)
    return keep_subject(service.requests.store, subject, service.persons)


def _unknown() -> ApiError:
    return ApiError(404, "there is no such request")

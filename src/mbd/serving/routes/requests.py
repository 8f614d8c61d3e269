"""Deletion requests: enter, look at, list, cancel."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from mbd.errors import UsageError
from mbd.formats.request import DeletionRequest, Impersonal, RequestId, State
from mbd.history.history import History
from mbd.monitoring.store_scanner import facts_of_request
from mbd.names import Name
from mbd.production.request_store import refuse_several
from mbd.serving.identity import Identity, role
from mbd.serving.problems import ApiError
from mbd.serving.request_index import RequestFilter, proven
from mbd.serving.routes import Limit, Serving, problems
from mbd.storage.store import NotThereError
from mbd.urls import without_paths

router = APIRouter(tags=["requests"])
MOST_MODALITIES = 64


class NewRequest(BaseModel):
    """A request to delete modalities from a model."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    model: Name
    """name of the model"""
    modalities: Annotated[list[Name], Field(min_length=1, max_length=MOST_MODALITIES)]
    """what the model has to forget"""
    subject: Annotated[SecretStr, Field(min_length=1, max_length=200)] | None = None
    """id of the person whose recordings are to be deleted, encrypted before it is stored; null: those of all"""
    nothing_held: bool = False
    """a person may be unknown: the answer is then a signed statement of that"""
    reason: Impersonal = ""
    """why, in a few words; no names of persons"""
    requester: Impersonal = ""
    """a case number that only those who took the request can resolve; no personal data"""


class RequestEventView(BaseModel):
    """One change of state."""

    at: datetime
    state: State
    note: str


class RequestSummary(BaseModel):
    """A request in a list."""

    model_config = ConfigDict(use_attribute_docstrings=True, from_attributes=True)

    id: RequestId
    model: str
    modalities: list[str]
    of_person: bool
    """whether it is about the recordings of one person"""
    state: State
    received: datetime
    due: datetime
    certificate: str | None


class RequestView(RequestSummary):
    """A request and its history."""

    reason: str
    requester: str
    history: list[RequestEventView]


class RequestPage(BaseModel):
    """A page of requests, nearest deadline first."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    requests: list[RequestSummary]
    next: str | None
    """value of `after` for the next page; null: this is the last"""


def view(request: DeletionRequest, history: History) -> RequestView:
    """Return what clients see of a request: not the workers' names, no paths, and no claim that lacks proof."""
    facts = proven(facts_of_request(request), history)
    shown = request.history[: len(facts.events)]
    return RequestView(
        **RequestSummary.model_validate(facts).model_dump(),
        reason=request.reason,
        requester=request.requester,
        history=[RequestEventView(at=e.at, state=e.state, note=without_paths(e.note)) for e in shown],
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
    return view(request, service.history)


@router.get("/requests", responses=problems(401, 403), dependencies=[role("read")])
def list_requests(
    service: Serving,
    state: Annotated[list[State], Query(max_length=6, description="only in these states")] = [],  # noqa: B006
    model: Annotated[str | None, Query(max_length=100)] = None,
    modality: Annotated[str | None, Query(max_length=100)] = None,
    only_open: Annotated[bool, Query(alias="open", description="only open requests")] = False,
    limit: Limit = 50,
    after: Annotated[str | None, Query(max_length=100, description="`next` of the page before")] = None,
) -> RequestPage:
    """List requests, nearest deadline first, as of the last scan of the store."""
    _ = service.snapshot  # 503 before the first scan: an empty list would be wrong
    requests, following = service.index.page(RequestFilter(frozenset(state), model, modality, only_open), limit, after)
    return RequestPage(requests=[RequestSummary.model_validate(facts) for facts in requests], next=following)


@router.get("/requests/{request_id}", responses=problems(401, 403, 404), dependencies=[role("read", "submit")])
def show_request(request_id: Identifier, service: Serving) -> RequestView:
    """Return a request and its history, as the store has it now."""
    try:
        return view(service.requests.get(request_id), service.history)
    except NotThereError as error:
        raise _unknown() from error


@router.post(
    "/requests/{request_id}/cancel", responses=problems(401, 403, 404, 409, 507), dependencies=[role("operate")]
)
def cancel(request_id: Identifier, service: Serving) -> RequestView:
    """Cancel a request that no worker has started."""
    try:
        with service.writing():
            request = service.requests.cancel(request_id)
    except NotThereError as error:
        raise _unknown() from error
    except UsageError as error:
        raise ApiError(409, error.problem) from error
    service.written(request)
    return view(request, service.history)


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
    if not new.nothing_held and not service.persons.known(subject):
        raise ApiError(
            422,
            "the data of this model has no such person",
            key="subject",
            hint="with `nothing_held` the answer is a signed statement of that",
        )
    return service.persons.keep(service.requests.store, subject)


def _unknown() -> ApiError:
    return ApiError(404, "there is no such request")

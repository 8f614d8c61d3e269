"""Errors as problem details (RFC 9457): what is wrong, a hint, and the id of the request, which is also in the log.

An answer never holds a path, a token, a name of a person or what the client sent. So only errors that are about the
client's own input are shown in their words; a failure of the store or of the server is named, and no more is said.
"""

import logging
import traceback
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match

from mbd.errors import DataError, MbdError, UsageError, VerificationError
from mbd.formats.verdict import Decision
from mbd.storage.store import ConflictError, NotThereError, NotWritableError, StoreError

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:missing-by-design:problem:"
"""what the type of every problem begins with"""
INFERENCE = "/v2/"
"""what the paths of the Open Inference Protocol begin with, whose clients read the member `error`"""
_LOG = logging.getLogger(__name__)


class View(BaseModel):
    """What clients see of something."""

    model_config = ConfigDict(use_attribute_docstrings=True, from_attributes=True)


class Problem(View):
    """Why a request was not carried out (RFC 9457)."""

    type: str
    """identifies the kind of problem"""
    title: str
    """the kind of problem in words"""
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    """what is wrong in this case"""
    request_id: str
    """the request in the server's log"""
    hint: str | None = None
    """what to do about it"""
    key: str | None = None
    """the part of the request that is wrong"""
    known: list[str] | None = None
    """the values that there are"""
    error: str | None = None
    """of an inference request: the same as `detail`"""
    reason: str | None = None
    """of an inference request: the kind of problem, as metrics count it"""
    value: str | None = None
    verdict: Decision | None = None
    """of a certificate that cannot be shown"""
    certificate: str | None = None
    """because of which an inference request is refused"""


TITLES = {
    400: ("bad-request", "The request cannot be read"),
    401: ("unauthenticated", "A valid token is needed"),
    403: ("forbidden", "The token does not allow this"),
    404: ("not-found", "There is no such thing here"),
    405: ("method", "The method is not supported here"),
    408: ("slow", "The request took too long"),
    409: ("conflict", "The state does not allow this"),
    413: ("too-large", "The body is too large"),
    422: ("invalid", "The request is not valid"),
    429: ("rate", "Too many requests"),
    500: ("failure", "The server failed"),
    503: ("unavailable", "The store is not available"),
    507: ("not-writable", "The store cannot be written"),
}
"""for each status what its type ends with, and its title"""
_SAFE: dict[type[MbdError], tuple[int, str]] = {
    NotWritableError: (
        507,
        "the store takes no new objects: it is full or read-only; nothing was lost, and nothing was changed",
    ),
    StoreError: (503, "the store cannot be reached or has failed; nothing was lost"),
    ConflictError: (409, "another writer was faster"),
    NotThereError: (404, "the store has no such object"),
    VerificationError: (503, "the log or a certificate in the store does not verify"),
    DataError: (503, "an object in the store is not valid"),
}
"""errors whose own words may hold paths"""


class ApiError(MbdError):
    """An error of the HTTP interface; its words are for the client."""

    def __init__(self, status: int, problem: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        """`members`: key, hint and further members of the answer."""
        super().__init__(problem, key=members.get("key"), hint=members.get("hint"))
        self.status, self.headers, self.members = status, headers, members


def request_id(scope: Mapping[str, Any]) -> str:
    """Return the id of a request."""
    return str(scope.get("state", {}).get("request_id", ""))


def answer(scope: Mapping[str, Any], status: int, detail: str, **more: Any) -> JSONResponse:
    """Return a problem as an answer; `more`: headers, and further members of it."""
    kind, title = TITLES.get(status, TITLES[400 if status < 500 else 500])
    headers, kind = more.pop("headers", None), more.get("reason", kind).replace("_", "-")
    if scope.get("path", "").startswith(INFERENCE):
        more["error"] = detail
    more |= {
        "type": f"{TYPE}{kind}",
        "title": title,
        "status": status,
        "detail": detail,
        "request_id": request_id(scope),
    }
    content = Problem(**more).model_dump(mode="json", exclude_none=True)
    return JSONResponse(content, status, headers=headers, media_type=MEDIA_TYPE)


def of_error(scope: Mapping[str, Any], error: Exception) -> JSONResponse:
    """Return the answer to any error, and log one that is the server's."""
    if isinstance(error, ApiError):
        return answer(scope, error.status, error.problem, headers=error.headers, **error.members)
    if isinstance(error, UsageError):
        return answer(scope, 422, error.problem, hint=error.hint, key=error.key)
    for kind, (status, detail) in _SAFE.items():
        if isinstance(error, kind):
            _log_failure(scope, error)
            return answer(scope, status, detail, headers={"Retry-After": "5"} if status >= 503 else None)
    _log_failure(scope, error)
    return answer(scope, 500, "an error that was not expected; the log has it under the id of the request")


def _log_failure(scope: Mapping[str, Any], error: Exception) -> None:
    """Log where an error was raised: names of functions and lines, but no message, which can hold data or paths."""
    frames = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
    fields = {"request_id": request_id(scope), "error": type(error).__name__, "at": " > ".join(frames)}
    _LOG.warning("request %s failed: %s at %s", *fields.values(), extra={"fields": fields})


def install(app: FastAPI) -> None:
    """Make every error of an application a problem."""

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> JSONResponse:
        status, headers = error.status_code, error.headers
        if status == 405:
            routes = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
            methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
            headers = {"Allow": ", ".join(sorted(methods))}
        details = {
            404: "there is nothing at this address",
            405: "this address does not take the method",
            408: "the body did not come in time",
            413: "the body is larger than allowed",
            503: "other large bodies are being read",
        }
        return answer(request.scope, status, details.get(status, "the request is not valid"), headers=headers)

    @app.exception_handler(RequestValidationError)
    async def on_validation(request: Request, error: RequestValidationError) -> JSONResponse:
        words, key = describe_invalid(error.errors()[0])
        return answer(request.scope, 422, words, key=key)

    @app.exception_handler(MbdError)
    async def on_error(request: Request, error: MbdError) -> JSONResponse:
        return of_error(request.scope, error)


def describe_invalid(error: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return what pydantic says of a part of a request, without its value, and where it is."""
    if error.get("type") == "json_invalid":
        return "the body is not JSON", None
    if error.get("type") == "extra_forbidden":
        return "the request has a key that is not known", None
    value, words = error.get("input"), str(error.get("msg", "the request is not valid")).removeprefix("Value error, ")
    if isinstance(value, str) and value and value in words:
        words = words.split(": ", 1)[-1]
    return words, ".".join(str(part) for part in error.get("loc", ()) if part != "body") or None

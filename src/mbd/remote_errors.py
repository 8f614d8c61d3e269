"""What went wrong with a remote store, read from an exception and its causes; and calling again while it passes.

DVC, s3fs, aiohttp and boto3 wrap each other's exceptions; only the whole chain shows whether to look at the
credentials, the network or the data. Classes of optional packages are known by their names.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from enum import Enum, auto
from itertools import chain, repeat
from typing import Any, TypeVar

from mbd.urls import without_credentials

Result = TypeVar("Result")
PATIENCE = "MBD_PATIENCE_SECONDS"
"""environment variable of a Kubeflow task: how long it waits for a service that is away; elsewhere nothing waits"""
_WAITS = (5, 10, 20, 40, 60)
_LOG = logging.getLogger(__name__)

_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"}
_REFUSED = {"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"}
_UNREACHABLE = {
    "EndpointConnectionError",
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "ReadTimeoutError",
    "ResponseStreamingError",
    "IncompleteReadError",
    "ClientConnectorError",
}
_CLOCK = {"RequestTimeTooSkewed", "RequestExpired"}
_FULL = {"XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded"}
_INSUFFICIENT_STORAGE = 507
_PASSING = {500, 502, 503, 504}


class ErrorKind(Enum):
    """Where to look."""

    CREDENTIALS = auto()
    UNREACHABLE = auto()
    CLOCK = auto()
    FULL = auto()
    NO_BUCKET = auto()
    NOT_THERE = auto()
    OTHER = auto()


def classify_error(error: BaseException, *, bucket_asked: bool = False) -> tuple[ErrorKind, str]:
    """Return where to look, and the reason in the words of the deepest cause, without credentials.

    With `bucket_asked` the question was about a bucket itself, so that a bare 404 is about the bucket.
    """
    causes = list(_causes(error))
    names = {type(cause).__name__ for cause in causes}
    codes = {_answer_part(cause, "Error").get("Code") for cause in causes}
    reason = without_credentials(str(causes[-1])) or type(causes[-1]).__name__

    def any_is(*kinds: type[BaseException]) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if codes & _FULL or _INSUFFICIENT_STORAGE in map(_http_status, causes):
        return ErrorKind.FULL, reason
    if codes & _CLOCK:
        return ErrorKind.CLOCK, reason
    if names & _NO_CREDENTIALS or codes & _REFUSED or any_is(PermissionError):
        return ErrorKind.CREDENTIALS, reason
    if "NoSuchBucket" in codes or (bucket_asked and "404" in codes):
        return ErrorKind.NO_BUCKET, reason
    if names & _UNREACHABLE or any_is(ConnectionError, TimeoutError):
        return ErrorKind.UNREACHABLE, reason
    return (ErrorKind.NOT_THERE if any_is(FileNotFoundError) else ErrorKind.OTHER), reason


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed later: the service was out of reach, or failed on its own side."""
    kind, _ = classify_error(error)
    return kind is ErrorKind.UNREACHABLE or not _PASSING.isdisjoint(map(_http_status, _causes(error)))


def retry_transient(call: Callable[[], Result]) -> Result:
    """Call until it ends otherwise than by a service that is away, or the patience of the environment does."""
    ending = time.monotonic() + float(os.environ.get(PATIENCE, "0"))
    for wait in chain(_WAITS, repeat(_WAITS[-1])):
        try:
            return call()
        except Exception as error:
            if not is_transient(error) or time.monotonic() + wait > ending:
                raise
            _LOG.warning("%s\ntrying again in %d s", error, wait)
            time.sleep(wait)
    raise AssertionError  # the waits do not end


def _http_status(error: BaseException) -> int | None:
    """Return the status of an answer, as exceptions of botocore, aiohttp and urllib have it."""
    statuses = (
        _answer_part(error, "ResponseMetadata").get("HTTPStatusCode"),
        *(getattr(error, name, None) for name in ("status", "code")),
    )
    return next((status for status in statuses if isinstance(status, int)), None)


def _answer_part(error: BaseException, part: str) -> dict[str, Any]:
    """Return a part of the answer of an S3 server that an exception of botocore holds."""
    answer: Any = getattr(error, "response", None)
    return dict(answer.get(part, {})) if isinstance(answer, dict) else {}


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

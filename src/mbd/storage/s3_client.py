"""The client for an S3 server, with timeouts, retries and error messages.

Credentials come only from the standard AWS chain (environment, profile, role). Requests that fail with 500, 502, 503,
504, a timeout or a broken connection are retried with exponential backoff and jitter (`standard` mode of botocore). All
requests are signed with the digest of their body, so the server refuses a damaged one.
"""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from mbd.errors import UsageError
from mbd.params.operations import StoreSettings
from mbd.remote_errors import ErrorKind, classify_error
from mbd.storage.store import NotWritableError, StoreError

S3Failure = (BotoCoreError, ClientError)
_LONGEST_PAUSE = 5.0
MISSING = {"NoSuchKey", "NoSuchVersion", "NoSuchUpload", "NotFound", "404"}
CHANGED = {"PreconditionFailed", "412", "ConditionalRequestConflict", "OperationAborted", "409"}

_DENIED = (
    "the S3 store denies access",
    "ask for the permission on the bucket (mbd.storage.s3 lists what is needed), or use other credentials",
)
_PROBLEMS = {
    ErrorKind.CREDENTIALS: (
        "the S3 store refused the credentials, or there are none",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or a profile) with permissions on the bucket",
    ),
    ErrorKind.UNREACHABLE: (
        "the S3 store cannot be reached, or does not answer in time",
        "check store.endpoint, store.timeout_seconds, the network and firewalls; then run it again",
    ),
    ErrorKind.NO_BUCKET: ("the bucket does not exist", "create the bucket, or correct store.url"),
    ErrorKind.CLOCK: (
        "the clock of this machine differs too much from that of the S3 store",
        "set the clock of this machine",
    ),
    ErrorKind.FULL: (
        "the S3 store takes no new objects: it is full, or over a quota",
        "free space or raise the quota of the bucket, then run it again: what is stored stays as it is",
    ),
}
_OTHERWISE = ("the S3 store fails", "run it again; if it persists, contact the operator of the store")


def make_client(settings: StoreSettings) -> Any:  # noqa: ANN401 -- boto3 has no types
    """Return a client for the endpoint of the parameters."""
    config = Config(
        signature_version="s3v4",
        connect_timeout=settings.timeout_seconds,
        read_timeout=settings.timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": settings.retries + 1},
        max_pool_connections=32,
        # SHA-256 digests are compared on our side; many servers do not support the newer checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": "path" if settings.endpoint else "auto", "payload_signing_enabled": True},
    )
    try:
        return boto3.Session().client("s3", endpoint_url=settings.endpoint, config=config)
    except ValueError as error:
        raise UsageError(
            f"the S3 endpoint is not valid: {error}", key="store.endpoint", hint="write https://HOST[:PORT]"
        ) from error


def code_of(error: BaseException) -> str:
    """Return the S3 error code, or an empty string."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def pause(failures: int) -> None:
    """Wait before the next attempt: exponential backoff with jitter."""
    time.sleep(random.uniform(0, min(_LONGEST_PAUSE, 0.1 * 2**failures)))  # noqa: S311 -- no secret


@contextmanager
def store_errors(url: str, name: str | None = None) -> Iterator[None]:
    """Within: an error of S3 becomes a StoreError with a hint."""
    try:
        yield
    except (*S3Failure, ConnectionError, TimeoutError) as error:
        kind, reason = classify_error(error, bucket_asked=True)
        denied = code_of(error) in {"AccessDenied", "403"}
        problem, hint = _DENIED if denied else _PROBLEMS.get(kind, _OTHERWISE)
        shown = f"{url}/{name}" if name else url
        failure = NotWritableError if kind is ErrorKind.FULL else StoreError
        raise failure(f"{problem}: {reason}", value=shown, hint=hint) from error

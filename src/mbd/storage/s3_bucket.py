"""A bucket: the client for it with timeouts, retries and error messages, requests for its objects, removal in batches.

Credentials come only from the standard AWS chain (environment, profile, role). Requests that fail with 500, 502, 503,
504, a timeout or a broken connection are retried with exponential backoff and jitter (`standard` mode of botocore). All
requests are signed with the digest of their body, so the server refuses a damaged one.

Every object we write has a random token in its metadata (`write`), by which a writer whose connection broke finds out
whether the server has stored it.
"""

import math
import random
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from urllib3.exceptions import HTTPError

from mbd.errors import UsageError
from mbd.params.operations import StoreSettings
from mbd.remote_errors import ErrorKind, classify_error
from mbd.storage.store import CHUNK, ConflictError, Lock, NotWritableError, StoredObject, StoreError, progress, size_of

S3Failure = (BotoCoreError, ClientError, HTTPError)
"""of botocore, and of what reads the body of an answer for it"""
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


_BROKEN_BODY = (HTTPClientError, IncompleteReadError, OSError)
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 4
MOST_AT_ONCE = 1000
"""objects in one request to delete"""
_TRANSIENT = {"InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout", "OperationAborted"}

KeyAndVersion = tuple[str, str | None]


@dataclass(frozen=True)
class ObjectState:
    """An object, or one version of it."""

    key: str
    size: int
    etag: str
    version: str | None
    token: str
    """of the write that made it"""
    lock: Lock | None
    modified: datetime | None

    @classmethod
    def of(cls, key: str, answer: dict[str, Any]) -> "ObjectState":
        """Parse the answer to a HEAD or a GET."""
        mode, until = answer.get("ObjectLockMode"), answer.get("ObjectLockRetainUntilDate")
        return cls(
            key,
            answer["ContentLength"],
            answer["ETag"].strip('"'),
            answer.get("VersionId"),
            answer.get("Metadata", {}).get("write", ""),
            Lock(mode, until) if mode and until else None,
            answer.get("LastModified"),
        )

    @property
    def tag(self) -> str:
        """Identifies this state: the version, or the ETag in a bucket without versions."""
        return self.version or self.etag

    def stored(self, name: str) -> StoredObject:
        """Return the object in the form that all stores share."""
        return StoredObject(name, self.size, self.tag, self.version, self.lock, self.modified)


class Bucket:
    """A bucket, and the client for it."""

    def __init__(self, name: str, settings: StoreSettings) -> None:
        self.name = name
        self.settings = settings

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 -- boto3 has no types
        """The client for the endpoint of the parameters, created on first use because it looks up credentials."""
        settings = self.settings
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

    def head(self, key: str, version: str | None = None) -> ObjectState | None:
        """Return the state of an object, or None if it does not exist."""
        try:
            return ObjectState.of(key, self.client.head_object(**self._address(key, version)))
        except ClientError as error:
            if code_of(error) in MISSING:
                return None
            if code_of(error) not in {"403", "400"}:
                raise
        # The answer to a HEAD has no body, so only a GET gives the reason of a refusal.
        answer = self.client.get_object(**self._address(key, version))
        answer["Body"].close()
        return ObjectState.of(key, answer)

    def download(self, key: str, version: str | None = None) -> tuple[ObjectState, Iterator[bytes]]:
        """Start reading an object; return its state and its content in pieces, resumed where they break off."""
        answer = self.client.get_object(**self._address(key, version))
        state = ObjectState.of(key, answer)
        return state, self._pieces(state, answer["Body"])

    def write(
        self, key: str, content: bytes | Path, *, expected: ObjectState | None
    ) -> tuple[bool, ObjectState | None]:
        """Write an object if `expected` is still current (None: if there is none); a large file in parts.

        Returns:
            Whether this was done, and the current object.
        """
        token = secrets.token_hex(16)
        conditions = {"IfMatch": expected.etag} if expected else {"IfNoneMatch": "*"}
        try:
            return True, self._upload(key, content, token, conditions)
        except S3Failure as error:
            # A refusal may be our own doing: the first attempt succeeded, its answer was lost, the retry was refused.
            state = self.head(key)
            done = state is not None and state.token == token
            if not done and code_of(error) not in CHANGED | MISSING:
                raise
            return done, state

    @property
    def part_size(self) -> int:
        """Size of a part; larger files are uploaded in parts."""
        return self.settings.part_mebibytes << 20

    def delete(self, prefix: str, batch: list[StoredObject]) -> dict[StoredObject, str]:
        """Remove at most :data:`MOST_AT_ONCE` objects or versions; return the reason for each that was not removed."""
        waiting: dict[KeyAndVersion, StoredObject] = {(prefix + each.name, each.version): each for each in batch}
        failed: dict[StoredObject, str] = {}
        for attempt in range(1, self.settings.retries + 2):
            again = {}
            for target, (code, message) in self._request_deletion(list(waiting)).items():
                if code in _TRANSIENT and attempt <= self.settings.retries:
                    again[target] = waiting[target]
                elif code not in MISSING:
                    failed[waiting[target]] = self._reason(target, code, message)
            if not again:
                break
            waiting = again
            pause(attempt)
        return failed

    def _pieces(self, state: ObjectState, body: Any) -> Iterator[bytes]:  # noqa: ANN401 -- boto3 has no types
        done, failures = 0, 0
        while True:
            try:
                for piece in body.iter_chunks(CHUNK):
                    done, failures = done + len(piece), 0
                    yield piece
                return
            except _BROKEN_BODY:
                failures += 1
                if failures > self.settings.retries:
                    raise
            if done == state.size:
                return
            pause(failures)
            rest = {"Range": f"bytes={done}-", "IfMatch": state.etag}
            try:
                body = self.client.get_object(**self._address(state.key, state.version), **rest)["Body"]
            except ClientError as error:
                if code_of(error) in CHANGED | MISSING:
                    problem = "another writer replaced this object while it was read"
                    raise ConflictError(problem, value=state.key) from error
                raise

    def _request_deletion(self, targets: list[KeyAndVersion]) -> dict[KeyAndVersion, tuple[str, str]]:
        """Send one request to delete; return code and message for each target that was refused."""
        if not targets:
            return {}
        wanted = [{"Key": key} | ({"VersionId": version} if version else {}) for key, version in targets]
        answer = self.client.delete_objects(Bucket=self.name, Delete={"Objects": wanted, "Quiet": True})
        return {
            (error["Key"], error.get("VersionId") or None): (error["Code"], error.get("Message", ""))
            for error in answer.get("Errors", [])
        }

    def _reason(self, target: KeyAndVersion, code: str, message: str) -> str:
        key, version = target
        state = self.head(key, version) if version else None
        if state and state.lock:
            return str(state.lock)
        return ": ".join(dict.fromkeys(filter(None, (code, message))))

    def _address(self, key: str, version: str | None) -> dict[str, str]:
        return {"Bucket": self.name, "Key": key} | ({"VersionId": version} if version else {})

    def _upload(self, key: str, content: bytes | Path, token: str, conditions: dict[str, str]) -> ObjectState:
        size = size_of(content)
        if isinstance(content, Path) and size > self.part_size:
            answer = self._upload_in_parts(key, content, size, token, conditions)
        else:
            body = content.read_bytes() if isinstance(content, Path) else content
            address = self._address(key, None)
            answer = self.client.put_object(**address, Body=body, Metadata={"write": token}, **conditions)
        etag, version = answer.get("ETag", "").strip('"'), answer.get("VersionId")
        state = ObjectState(key, size, etag, version, token, None, None)
        # Not every server returns the ETag of a multipart upload.
        return state if etag else self.head(key, version) or state

    def _upload_in_parts(
        self, key: str, file: Path, size: int, token: str, conditions: dict[str, str]
    ) -> dict[str, Any]:
        address = self._address(key, None)
        upload = address | {
            "UploadId": self.client.create_multipart_upload(**address, Metadata={"write": token})["UploadId"]
        }
        length = max(self.part_size, math.ceil(size / _MOST_PARTS))

        def send(number: int) -> dict[str, Any]:
            with file.open("rb") as stream:
                stream.seek((number - 1) * length)
                body = stream.read(length)
            etag = self.client.upload_part(**upload, PartNumber=number, Body=body)["ETag"]
            moved(len(body))
            return {"PartNumber": number, "ETag": etag}

        try:
            with progress(f"storing {file.name}", size) as moved, ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
                parts = list(pool.map(send, range(1, math.ceil(size / length) + 1)))
            answer: dict[str, Any] = self.client.complete_multipart_upload(
                **upload, MultipartUpload={"Parts": parts}, **conditions
            )
        except BaseException:
            with suppress(*S3Failure):
                self.client.abort_multipart_upload(**upload)
            raise
        return answer

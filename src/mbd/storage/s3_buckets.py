"""Concurrent writers: without versions the server compares, with versions their order decides.

Both kinds of bucket have two operations. `state(key)` returns the current object of a name. `write(key, …)` replaces
`expected` if it is still current, and returns what is current then.

In a bucket without versions, `If-None-Match: *` and `If-Match` are used. Servers may ignore these conditions in a
bucket with versions (the gateway of Ceph ignores the first and refuses the second), so there the rule does not rely on
them: every version has in its metadata `after` the version that it replaces (or nothing). The history of a name starts
with the oldest version after nothing, and continues with the oldest version after that one. All other versions lost a
race and are ignored, whether or not their writers have removed them. Each writer lists the versions after its write.
Versions keep the order in which the server stored them, so all writers see the same winner. A deletion ends the
history; the next version after nothing starts a new one.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from botocore.exceptions import ClientError

from mbd.storage.s3_client import CHANGED, MISSING, S3Failure, code_of
from mbd.storage.s3_objects import Bucket, ObjectState, Write

_PAGE = 20


class WriteStrategy(Protocol):
    """How objects are written in a kind of bucket."""

    def state(self, key: str) -> ObjectState | None:
        """Return the current object of this name, or None."""

    def write(
        self, key: str, content: bytes | Path, sha256: str, *, expected: ObjectState | None
    ) -> tuple[bool, ObjectState | None]:
        """Replace `expected`; return whether this was done, and the current object."""


class PlainBucket:
    """A bucket without versions."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def state(self, key: str) -> ObjectState | None:
        """See :meth:`WriteStrategy.state`."""
        return self._bucket.head(key)

    def write(
        self, key: str, content: bytes | Path, sha256: str, *, expected: ObjectState | None
    ) -> tuple[bool, ObjectState | None]:
        """See :meth:`WriteStrategy.write`."""
        write = _new_write(sha256, expected)
        conditions = {"IfMatch": expected.etag} if expected else {"IfNoneMatch": "*"}
        try:
            return True, self._bucket.upload(key, content, write, conditions)
        except S3Failure as error:
            # A refusal may be our own doing: the first attempt succeeded, its answer was lost, the retry was refused.
            state = self._bucket.head(key)
            done = state is not None and state.write.token == write.token
            if not done and code_of(error) not in CHANGED | MISSING:
                raise
            return done, state


class VersionedBucket:
    """A bucket with versions."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._server_compares = True

    def state(self, key: str) -> ObjectState | None:
        """See :meth:`WriteStrategy.state`."""
        versions = self._alive(key)
        newest = next(self._heads(key, versions), None)
        if newest is None:
            return None
        base, later = newest.write.after, [newest]
        for version in versions:
            if version == base:
                break
            later += self._heads(key, [version])
        else:
            if base and self._bucket.head(key, base):
                base = ""  # it was deleted before it could be replaced
        current = None
        for state in reversed(later):
            if state.write.after == base and state.version:
                current, base = state, state.version
        return current

    def write(
        self, key: str, content: bytes | Path, sha256: str, *, expected: ObjectState | None
    ) -> tuple[bool, ObjectState | None]:
        """See :meth:`WriteStrategy.write`."""
        write, failure = _new_write(sha256, expected), None
        try:
            self._upload(key, content, write, expected)
        except S3Failure as error:
            failure = error
        contenders = list(self._heads(key, self._since(key, write.after)))
        winner = next((state for state in reversed(contenders) if state.write.after == write.after), None)
        # An attempt whose answer was lost and its retry create two versions.
        for state in contenders:
            if state.write.token == write.token and state is not winner and state.version:
                self._bucket.remove(key, state.version)
        done = winner is not None and winner.write.token == write.token
        if failure and not done and code_of(failure) not in CHANGED | MISSING:
            raise failure
        return done, winner

    def _upload(self, key: str, content: bytes | Path, write: Write, expected: ObjectState | None) -> None:
        if expected is None or not self._server_compares:
            self._bucket.upload(key, content, write, {} if expected else {"IfNoneMatch": "*"})
            return
        try:
            self._bucket.upload(key, content, write, {"IfMatch": expected.etag})
        except ClientError as error:
            state = self.state(key) if code_of(error) in CHANGED else None
            if state is None or state.version != expected.version:
                raise
            # Nothing has changed, so the server does not compare: from now on only the order decides.
            self._server_compares = False
            self._bucket.upload(key, content, write, {})

    def _since(self, key: str, version: str) -> Iterator[str]:
        for each in self._alive(key):
            if each == version:
                return
            yield each

    def _heads(self, key: str, versions: Iterator[str] | list[str]) -> Iterator[ObjectState]:
        """Yield the state of versions; those that a losing writer has just removed are skipped."""
        for version in versions:
            if state := self._bucket.head(key, version):
                yield state

    def _alive(self, key: str) -> Iterator[str]:
        """Yield the versions of this name since its last deletion, newest first."""
        position: dict[str, str] = {}
        while True:
            page = self._page(key, position)
            versions, markers = _ids(page, "Versions", key), _ids(page, "DeleteMarkers", key)
            if markers:
                # The answer has versions and markers in two lists, so versions older than the marker are listed again.
                older = self._page(key, {"KeyMarker": key, "VersionIdMarker": markers[0]})
                dead = _ids(older, "Versions", key)
                yield from (version for version in versions if version not in dead)
                return
            yield from versions
            if not page["IsTruncated"] or page.get("NextKeyMarker") != key:
                return
            position = {"KeyMarker": key, "VersionIdMarker": page["NextVersionIdMarker"]}

    def _page(self, key: str, position: dict[str, str]) -> dict[str, Any]:
        client = self._bucket.client
        page: dict[str, Any] = client.list_object_versions(
            Bucket=self._bucket.name, Prefix=key, MaxKeys=_PAGE, **position
        )
        return page


def _new_write(sha256: str, expected: ObjectState | None) -> Write:
    return Write(sha256, secrets.token_hex(16), (expected.version or expected.etag) if expected else "")


def _ids(page: dict[str, Any], kind: str, key: str) -> list[str]:
    return [entry["VersionId"] for entry in page.get(kind, []) if entry["Key"] == key]

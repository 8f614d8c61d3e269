"""How one writer wins: in a bucket without versions the server compares, in one with versions their order decides.

Both kinds of bucket answer two questions. `state(key)`: which object stands under this name? `write(key, …)`: put
this in the place of `expected`, if it still stands there; what stands there now?

A bucket without versions is asked with `If-None-Match: *` or `If-Match`. Servers that keep versions may ignore these
conditions there (Ceph's gateway ignores the first and refuses the second), so a versioned bucket has a rule of its
own, which does not rely on them: every version carries in its note `after` the version that it replaces (or nothing).
The history of a name begins with the oldest version that comes after nothing, and goes on with the oldest version that
comes after that one; all others lost a race and count for nothing, whether their writers have removed them or been
killed before. Each writer lists the versions after its write, so all see the same winner, as versions keep the order
in which the server took them. Deleting ends the history, and the next version that comes after nothing begins another.
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
    """A kind of bucket."""

    def state(self, key: str) -> ObjectState | None:
        """Return the object that stands under this name, or None."""

    def write(
        self, key: str, content: bytes | Path, sha256: str, *, expected: ObjectState | None
    ) -> tuple[bool, ObjectState | None]:
        """Put content in the place of `expected`; tell whether that was done, and what stands there now."""


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
            # Even a refusal may come from ourselves: the first attempt done, its answer lost, the second refused.
            state = self._bucket.head(key)
            done = state is not None and state.write.token == write.token
            if not done and code_of(error) not in CHANGED | MISSING:
                raise
            return done, state


class VersionedBucket:
    """A bucket that keeps versions."""

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
                base = ""  # it was deleted: whoever wanted to replace it came too late
        standing = None
        for state in reversed(later):
            if state.write.after == base and state.version:
                standing, base = state, state.version
        return standing

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
        # An attempt whose answer was lost and its repetition make two versions.
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
            # Nothing has changed, so the server does not really compare: the order decides alone.
            self._server_compares = False
            self._bucket.upload(key, content, write, {})

    def _since(self, key: str, version: str) -> Iterator[str]:
        for each in self._alive(key):
            if each == version:
                return
            yield each

    def _heads(self, key: str, versions: Iterator[str] | list[str]) -> Iterator[ObjectState]:
        """Look at versions; one that its loser has just removed is left out."""
        for version in versions:
            if state := self._bucket.head(key, version):
                yield state

    def _alive(self, key: str) -> Iterator[str]:
        """Yield the versions of exactly this name since its last deletion, newest first."""
        place: dict[str, str] = {}
        while True:
            page = self._page(key, place)
            versions, markers = _ids(page, "Versions", key), _ids(page, "DeleteMarkers", key)
            if markers:
                # The answer has versions and markers in two lists: what is older than the marker is asked for.
                older = self._page(key, {"KeyMarker": key, "VersionIdMarker": markers[0]})
                dead = _ids(older, "Versions", key)
                yield from (version for version in versions if version not in dead)
                return
            yield from versions
            if not page["IsTruncated"] or page.get("NextKeyMarker") != key:
                return
            place = {"KeyMarker": key, "VersionIdMarker": page["NextVersionIdMarker"]}

    def _page(self, key: str, place: dict[str, str]) -> dict[str, Any]:
        client = self._bucket.client
        page: dict[str, Any] = client.list_object_versions(Bucket=self._bucket.name, Prefix=key, MaxKeys=_PAGE, **place)
        return page


def _new_write(sha256: str, expected: ObjectState | None) -> Write:
    return Write(sha256, secrets.token_hex(16), (expected.version or expected.etag) if expected else "")


def _ids(page: dict[str, Any], kind: str, key: str) -> list[str]:
    return [entry["VersionId"] for entry in page.get(kind, []) if entry["Key"] == key]

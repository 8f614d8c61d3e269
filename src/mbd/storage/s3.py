"""A store in an S3 bucket, at Amazon or any other server that compares before it writes.

Permissions to read: `s3:GetObject`, `s3:GetObjectVersion`, `s3:ListBucket`, `s3:ListBucketVersions`,
`s3:GetBucketVersioning`; to write: `s3:PutObject`, `s3:AbortMultipartUpload`, `s3:GetBucketObjectLockConfiguration`;
for locks `s3:PutObjectRetention` and `s3:GetObjectRetention`.

Of concurrent writers the server lets one win, by the conditions `If-None-Match: *` and `If-Match`. A server that
ignores them (some do so in buckets with versions) is refused: the first writer of a store tries them on an object below
`.probes/`, which then says that they hold. Servers may still ignore them at the end of a multipart upload. In a bucket
without versions, the writer of a large file therefore claims the name first, by a small object below `.claims/` that
holds the digest. A lock is set once the writer has won; a writer that is killed before sets it when it runs again.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from mbd.errors import UsageError
from mbd.params.operations import StoreSettings
from mbd.storage.s3_bucket import MISSING, MOST_AT_ONCE, Bucket, ObjectState, code_of, store_errors
from mbd.storage.store import (
    Lock,
    LockedError,
    StoredObject,
    StoreError,
    check_digest,
    check_name,
    check_size,
    conflict,
    no_locks,
    not_there,
    other_content,
    sha256_of,
    sha256_pieces,
    size_of,
    write_verified,
)

_CLAIMS = ".claims/"
_PROBES = ".probes/"
_ATTEMPTS = 10
_BUCKET_NAME = r"[a-zA-Z0-9][a-zA-Z0-9._-]{2,62}"
_NO_LOCKS = {"ObjectLockConfigurationNotFoundError", "NotImplemented", "MethodNotAllowed", "405", "501"}


class S3Store:
    """A store at `s3://BUCKET[/PREFIX]`."""

    def __init__(self, url: str, settings: StoreSettings) -> None:
        address = urlsplit(url)
        if not re.fullmatch(_BUCKET_NAME, address.netloc) or address.query or address.fragment:
            raise UsageError("an S3 store is s3://BUCKET[/PREFIX], without credentials", key="store.url")
        path = address.path.strip("/")
        self._prefix = f"{'/'.join(check_name(path))}/" if path else ""
        self.url = f"s3://{address.netloc}/{self._prefix}".rstrip("/")
        self._bucket = Bucket(address.netloc, settings)
        self._writable = False

    @cached_property
    def locks(self) -> bool:
        """See :attr:`mbd.storage.store.Store.locks`."""
        return bool(self._lock_configuration.get("ObjectLockEnabled") == "Enabled")

    def create(self, name: str, content: bytes | Path, *, lock: Lock | None = None) -> StoredObject:
        """See :meth:`mbd.storage.store.Store.create`."""
        check_name(name)
        if lock and not self.locks:
            raise no_locks(self.url)
        key, size, sha256 = self._prefix + name, size_of(content), sha256_of(content)
        with store_errors(self.url, name):
            self._check_writable()
            if not self._versioned and size > self._bucket.part_size and isinstance(content, Path):
                self._settle(self._prefix + _CLAIMS + name, sha256.encode(), sha256_of(sha256.encode()), name)
            state = self._settle(key, content, sha256, name)
            if lock and not state.lock:
                state = self._lock(state, lock)
        return state.stored(name)

    def replace(self, name: str, content: bytes, *, expected: str | None) -> StoredObject:
        """See :meth:`mbd.storage.store.Store.replace`."""
        check_name(name)
        key = self._prefix + name
        with store_errors(self.url, name):
            self._check_writable()
            state = self._bucket.head(key)
            if (state.tag if state else None) != expected:
                raise conflict(self.url, name)
            if state and state.lock:
                raise LockedError(f"this object in {self.url} is {state.lock}", value=name)
            done, written = self._bucket.write(key, content, expected=state)
        if not done or written is None:
            raise conflict(self.url, name)
        return written.stored(name)

    def read(self, name: str, *, sha256: str | None = None) -> bytes:
        """See :meth:`mbd.storage.store.Store.read`."""
        check_name(name)
        content, _ = self.read_tagged(name)
        if sha256 and self._versioned and hashlib.sha256(content).hexdigest() != sha256:
            # It was overwritten by something else than a store; content with the expected digest is right.
            older = (b"".join(self.pieces(each)) for each in self.versions(name) if each.name == name and each.tag)
            content = next((each for each in older if hashlib.sha256(each).hexdigest() == sha256), content)
        check_digest(hashlib.sha256(content).hexdigest(), sha256, name, self.url)
        return content

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """See :meth:`mbd.storage.store.Store.read_tagged`."""
        check_name(name)
        with store_errors(self.url, name):
            state, content = self._download(name, None)
            check_size(state.size, self.url, name)
            return b"".join(content), state.tag

    def fetch(self, name: str, to: Path, *, sha256: str) -> None:
        """See :meth:`mbd.storage.store.Store.fetch`."""
        check_name(name)
        with store_errors(self.url, name):
            state, content = self._download(name, None)
        pieces = self._with_errors(content, name)
        write_verified(pieces, to, sha256=sha256, size=state.size, name=name, url=self.url)

    def pieces(self, stored: StoredObject) -> Iterator[bytes]:
        """See :meth:`mbd.storage.store.Store.pieces`."""
        with store_errors(self.url, stored.name):
            yield from self._download(stored.name, stored.version)[1]

    def stat(self, name: str) -> StoredObject | None:
        """See :meth:`mbd.storage.store.Store.stat`."""
        check_name(name)
        with store_errors(self.url, name):
            state = self._bucket.head(self._prefix + name)
        if state is None:
            _ = self._versioning  # raises if the bucket is missing, which a HEAD does not tell from an object
        return state.stored(name) if state else None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """See :meth:`mbd.storage.store.Store.list`."""
        for page in self._pages("list_objects_v2", prefix):
            for entry in page.get("Contents", []):
                name = entry["Key"].removeprefix(self._prefix)
                if not name.startswith("."):
                    yield StoredObject(name, entry["Size"], "", modified=entry["LastModified"])

    def versions(self, prefix: str = "") -> Iterator[StoredObject]:
        """See :meth:`mbd.storage.store.Store.versions`; includes the internal objects of the store."""
        for page in self._pages("list_object_versions", prefix):
            # The answer has versions and delete markers in two lists, each sorted by name.
            for entry in sorted(page.get("Versions", []) + page.get("DeleteMarkers", []), key=lambda e: str(e["Key"])):
                name, version = entry["Key"].removeprefix(self._prefix), entry["VersionId"]
                version = None if version == "null" and self._versioning is None else version
                tag = (version or entry["ETag"].strip('"')) if "ETag" in entry else ""
                yield StoredObject(name, entry.get("Size", 0), tag, version, modified=entry["LastModified"])

    def delete(self, objects: Iterable[StoredObject]) -> dict[StoredObject, str]:
        """See :meth:`mbd.storage.store.Store.delete`."""
        failed: dict[StoredObject, str] = {}
        remaining = iter(objects)
        while batch := [*islice(remaining, MOST_AT_ONCE)]:
            with store_errors(self.url):
                failed |= self._bucket.delete(self._prefix, batch)
                if not self._versioned:
                    claims = [StoredObject(_CLAIMS + each.name, 0, "") for each in batch if each not in failed]
                    self._bucket.delete(self._prefix, claims)
        return failed

    def unfinished(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the unfinished multipart uploads."""
        for page in self._pages("list_multipart_uploads", prefix):
            for upload in page.get("Uploads", []):
                name = upload["Key"].removeprefix(self._prefix)
                yield StoredObject(name, 0, upload["UploadId"], modified=upload["Initiated"])

    def abort(self, unfinished: StoredObject) -> None:
        """See :meth:`mbd.storage.store.Store.abort`."""
        upload = {"Bucket": self._bucket.name, "Key": self._prefix + unfinished.name, "UploadId": unfinished.tag}
        with store_errors(self.url, unfinished.name):
            try:
                self._bucket.client.abort_multipart_upload(**upload)
            except ClientError as error:
                if code_of(error) not in MISSING:
                    raise

    def _settle(self, key: str, content: bytes | Path, sha256: str, name: str) -> ObjectState:
        """Create the object unless it exists; return it. Another writer may have created the same content."""
        for _ in range(_ATTEMPTS):
            state = self._bucket.head(key)
            if state is None:
                done, state = self._bucket.write(key, content, expected=None)
                if done and state:
                    return state
            if state:
                if self._digest(state, size_of(content)) != sha256:
                    raise other_content(self.url, name)
                return state
        raise StoreError(f"other writers keep creating and removing this object in {self.url}", value=name)

    def _digest(self, state: ObjectState, size: int) -> str | None:
        """Return the digest of the stored content, or None if its size differs."""
        if state.size != size:
            return None
        return sha256_pieces(self._bucket.download(state.key, state.version)[1])

    def _lock(self, state: ObjectState, lock: Lock) -> ObjectState:
        version = {"Bucket": self._bucket.name, "Key": state.key, "VersionId": state.version}
        retention = {"Mode": lock.mode, "RetainUntilDate": lock.until}
        try:
            self._bucket.client.put_object_retention(**version, Retention=retention)
        except ClientError:
            # A concurrent writer of the same object may have locked it first, and for longer.
            locked = self._bucket.head(state.key)
            if locked is None or locked.version != state.version or locked.lock is None:
                raise
            return locked
        return replace(state, lock=lock)

    def _download(self, name: str, version: str | None) -> tuple[ObjectState, Iterator[bytes]]:
        try:
            return self._bucket.download(self._prefix + name, version)
        except ClientError as error:
            if code_of(error) in MISSING:
                raise not_there(self.url, name) from error
            raise

    def _with_errors(self, content: Iterator[bytes], name: str) -> Iterator[bytes]:
        with store_errors(self.url, name):
            yield from content

    def _pages(self, operation: str, prefix: str) -> Iterator[dict[str, Any]]:
        with store_errors(self.url, prefix):
            pages = self._bucket.client.get_paginator(operation)
            yield from pages.paginate(Bucket=self._bucket.name, Prefix=self._prefix + prefix)

    def _check_writable(self) -> None:
        if self._writable:
            return
        if self._versioning == "Suspended":
            raise StoreError(
                f"the bucket of {self.url} has suspended versioning, so versions would be lost",
                hint="enable versioning again, or publish to another bucket",
            )
        if self._versioned and self._lock_configuration.get("Rule"):
            raise StoreError(
                f"the bucket of {self.url} locks every object by default, but models must remain deletable",
                hint="remove the default retention of the bucket: certificates are locked individually (store.lock_*)",
            )
        self._require_conditional_writes()
        self._writable = True

    def _require_conditional_writes(self) -> None:
        """Try the conditions on an object, which is empty until they were seen to hold."""
        name = _PROBES + (self._versioning or "plain")
        key, write = self._prefix + name, self._bucket.write
        state = self._bucket.head(key) or write(key, b"", expected=None)[1]
        if state and not state.size:
            other = replace(state, etag="0" * 32)
            ignored = write(key, b"", expected=None)[0] or write(key, b"", expected=other)[0]
            if not ignored and write(key, b"holds", expected=state)[0]:
                return
            state = self._bucket.head(key)  # another writer may have found out at the same time
        if state is None or not state.size:
            self.delete(self.versions(name))
            raise StoreError(
                f"the server of {self.url} ignores the conditions If-None-Match and If-Match in this bucket: "
                "concurrent writers would overwrite each other",
                hint="use a server that supports conditional writes"
                + (" in buckets with versions, or a bucket without versions" if self._versioned else ""),
            )

    @property
    def _versioned(self) -> bool:
        return self._versioning == "Enabled"

    @cached_property
    def _versioning(self) -> str | None:
        with store_errors(self.url):
            status: str | None = self._bucket.client.get_bucket_versioning(Bucket=self._bucket.name).get("Status")
        return status

    @cached_property
    def _lock_configuration(self) -> dict[str, Any]:
        with store_errors(self.url):
            try:
                answer = self._bucket.client.get_object_lock_configuration(Bucket=self._bucket.name)
            except ClientError as error:
                if code_of(error) in _NO_LOCKS:
                    return {}
                raise
        configuration: dict[str, Any] = answer["ObjectLockConfiguration"]
        return configuration

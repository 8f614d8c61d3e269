"""Objects of a bucket, one request at a time: what they are, sending them and getting them.

What we write carries three notes in its metadata: `sha256` (of its content), `write` (a random name of this very
write, by which a writer whose connection broke finds out whether the server took it) and `after` (the version that it
takes the place of).
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError, HTTPClientError, IncompleteReadError

from mbd.params.operations import StoreSettings
from mbd.storage.s3_client import CHANGED, MISSING, S3Failure, code_of, make_client, pause
from mbd.storage.store import ConflictError, Lock, StoredObject
from mbd.storage.transfer import CHUNK, progress, size_of

_BROKEN_BODY = (HTTPClientError, IncompleteReadError, OSError)
_MOST_PARTS = 10_000
_PARTS_AT_ONCE = 4


@dataclass(frozen=True)
class Write:
    """The notes that an object carries of its writing."""

    sha256: str
    token: str
    after: str

    @property
    def metadata(self) -> dict[str, str]:
        """The notes as S3 stores them."""
        return {"sha256": self.sha256, "write": self.token, "after": self.after}


@dataclass(frozen=True)
class ObjectState:
    """An object, in one version where there are versions."""

    key: str
    size: int
    etag: str
    version: str | None
    write: Write
    lock: Lock | None
    modified: datetime | None

    @classmethod
    def of(cls, key: str, answer: dict[str, Any]) -> "ObjectState":
        """Read the answer to a HEAD or a GET."""
        notes = answer.get("Metadata", {})
        mode, until = answer.get("ObjectLockMode"), answer.get("ObjectLockRetainUntilDate")
        return cls(
            key,
            answer["ContentLength"],
            answer["ETag"].strip('"'),
            answer.get("VersionId"),
            Write(notes.get("sha256", ""), notes.get("write", ""), notes.get("after", "")),
            Lock(mode, until) if mode and until else None,
            answer.get("LastModified"),
        )

    @property
    def tag(self) -> str:
        """What names this state: its version, or the ETag in a bucket without versions."""
        return self.version or self.etag

    def stored(self, name: str) -> StoredObject:
        """Return it as all stores do."""
        return StoredObject(name, self.size, self.tag, self.version, self.lock, self.modified)


class Bucket:
    """A bucket and the client that asks it."""

    def __init__(self, name: str, settings: StoreSettings) -> None:
        self.name = name
        self.settings = settings

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 -- boto3 has no types
        """The client, made when it is first needed: it looks for credentials."""
        return make_client(self.settings)

    def head(self, key: str, version: str | None = None) -> ObjectState | None:
        """Return what an object is, or None if it is not there."""
        try:
            return ObjectState.of(key, self.client.head_object(**self._place(key, version)))
        except ClientError as error:
            if code_of(error) in MISSING:
                return None
            if code_of(error) not in {"403", "400"}:
                raise
        # The answer to a refused HEAD has no room for the reason; the one to a refused GET has.
        answer = self.client.get_object(**self._place(key, version))
        answer["Body"].close()
        return ObjectState.of(key, answer)

    def remove(self, key: str, version: str) -> None:
        """Remove one version."""
        self.client.delete_object(**self._place(key, version))

    def download(self, key: str, version: str | None = None) -> "Download":
        """Begin to read an object."""
        return Download(self, key, version)

    def upload(self, key: str, content: bytes | Path, write: Write, conditions: dict[str, str]) -> ObjectState:
        """Write an object if the server finds the conditions to hold; in parts if it is large."""
        size = size_of(content)
        if isinstance(content, Path) and size > self.part_size:
            answer = self._upload_in_parts(key, content, size, write, conditions)
        else:
            body = content.read_bytes() if isinstance(content, Path) else content
            place = self._place(key, None)
            answer = self.client.put_object(**place, Body=body, Metadata=write.metadata, **conditions)
        etag, version = answer.get("ETag", "").strip('"'), answer.get("VersionId")
        state = ObjectState(key, size, etag, version, write, None, None)
        # Not every server names the ETag at the end of an upload in parts.
        return state if etag else self.head(key, version) or state

    @property
    def part_size(self) -> int:
        """From here on files go in parts of this size."""
        return self.settings.part_mebibytes << 20

    def get(self, key: str, version: str | None, conditions: dict[str, str]) -> dict[str, Any]:
        """Ask for an object's bytes."""
        answer: dict[str, Any] = self.client.get_object(**self._place(key, version), **conditions)
        return answer

    def _place(self, key: str, version: str | None) -> dict[str, str]:
        return {"Bucket": self.name, "Key": key} | ({"VersionId": version} if version else {})

    def _upload_in_parts(
        self, key: str, file: Path, size: int, write: Write, conditions: dict[str, str]
    ) -> dict[str, Any]:
        place = self._place(key, None)
        upload = place | {"UploadId": self.client.create_multipart_upload(**place, Metadata=write.metadata)["UploadId"]}
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


class Download:
    """An object's bytes, piece by piece; a body that breaks off is taken up again where it broke."""

    def __init__(self, bucket: Bucket, key: str, version: str | None) -> None:
        self._bucket, self._key = bucket, key
        self._answer = bucket.get(key, version, {})
        self.state = ObjectState.of(key, self._answer)

    def __iter__(self) -> Iterator[bytes]:
        """Yield all pieces."""
        done, failures = 0, 0
        while True:
            try:
                for piece in self._answer["Body"].iter_chunks(CHUNK):
                    done, failures = done + len(piece), 0
                    yield piece
                return
            except _BROKEN_BODY:
                failures += 1
                if failures > self._bucket.settings.retries:
                    raise
            if done == self.state.size:
                return
            pause(failures)
            self._resume(done)

    def _resume(self, done: int) -> None:
        rest = {"Range": f"bytes={done}-", "IfMatch": self.state.etag}
        try:
            self._answer = self._bucket.get(self._key, self.state.version, rest)
        except ClientError as error:
            if code_of(error) in CHANGED | MISSING:
                raise ConflictError("somebody has replaced this object while it was read", value=self._key) from error
            raise

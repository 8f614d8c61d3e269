"""The interface of a store: named objects that appear completely or not at all.

Names are relative, with `/` between their parts (`certificates/…/bundle.json`), and no object name is a folder of
another. An object is either created once (:meth:`Store.create`; of concurrent writers exactly one wins) or is a pointer
that changes by compare-and-swap (:meth:`Store.replace`, :func:`update`). Content is compared with the digest that the
reader expects.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol

from mbd.errors import DataError, MbdError, VerificationError
from mbd.files import sha256_file, whole_file
from mbd.logs import progress_bar

if TYPE_CHECKING:
    from mbd.params.operations import StoreSettings

LockMode = Literal["GOVERNANCE", "COMPLIANCE"]
LARGEST_IN_MEMORY = 64 << 20
"""bytes that an object may have that is read into memory: certificates, proofs, tiles, requests, lists"""
LONGEST_NAME = 800
LONGEST_PART = 200
_ATTEMPTS = 1000


class StoreError(MbdError):
    """The store failed: it is unreachable, denies access, or is broken."""


class NotWritableError(StoreError):
    """The store can be read, but takes no new bytes: it is full, over a quota, or read-only."""


class NotThereError(DataError):
    """The object does not exist."""


class OtherContentError(MbdError):
    """The object exists already, with other content."""


class ConflictError(MbdError):
    """Another writer has changed the object in the meantime: read it again and decide again."""


class LockedError(MbdError):
    """The object is under Object Lock."""


@dataclass(frozen=True)
class Lock:
    """Object Lock of an object."""

    mode: LockMode
    """GOVERNANCE (can be lifted with a special permission) | COMPLIANCE (cannot be lifted)"""
    until: datetime

    def __str__(self) -> str:
        return f"under Object Lock ({self.mode}) until {self.until.isoformat(timespec='seconds')}"


class StoredObject(NamedTuple):
    """An object in a store."""

    name: str
    size: int
    tag: str
    """identifies this state of the object, for :meth:`Store.replace`; empty in listings"""
    version: str | None = None
    """version id, in a store with versions"""
    lock: Lock | None = None
    modified: datetime | None = None


class Store(Protocol):
    """A store. All methods raise :class:`StoreError` when the store itself fails."""

    @property
    def url(self) -> str:
        """Its URL, without credentials."""

    @property
    def locks(self) -> bool:
        """Whether the store supports Object Lock."""

    def create(self, name: str, content: bytes | Path, *, lock: Lock | None = None) -> StoredObject:
        """Create an object. If it exists with the same content, nothing is written.

        Args:
            name: Name of the object.
            content: Its content. A Path is a file that may be large: it is streamed, with progress.
            lock: Object Lock, only if :attr:`locks`. An existing object without a lock gets it; an existing lock stays.

        Raises:
            OtherContentError: The object exists with other content.
        """

    def replace(self, name: str, content: bytes, *, expected: str | None) -> StoredObject:
        """Write a small object if its tag is still `expected` (None: if it does not exist).

        Raises:
            ConflictError: Another writer was faster.
            LockedError: The object is under Object Lock.
        """

    def read(self, name: str, *, sha256: str | None = None) -> bytes:
        """Return the content of an object.

        Raises:
            NotThereError: The object does not exist.
            DataError: It has more than :data:`LARGEST_IN_MEMORY` bytes.
            VerificationError: The digest of the content is not `sha256`.
        """

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """Return the content of an object and the tag of this state."""

    def fetch(self, name: str, to: Path, *, sha256: str) -> None:
        """Write an object to a file, completely and with this digest, or not at all."""

    def pieces(self, stored: StoredObject) -> Iterator[bytes]:
        """Yield the content of this version of an object in pieces; NotThereError if it does not exist."""

    def stat(self, name: str) -> StoredObject | None:
        """Return an object without its content, or None if it does not exist."""

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose names start with `prefix`, in order of their UTF-8 bytes."""

    def versions(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield every version of the objects below `prefix`, including delete markers (size 0, tag "")."""

    def delete(self, objects: Iterable[StoredObject]) -> dict[StoredObject, str]:
        """Remove objects (with a version: this version permanently); return the reason for each that was not removed.

        An object that does not exist counts as removed.
        """

    def unfinished(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield unfinished writes, of killed writers and of active ones; only `modified` distinguishes them."""

    def abort(self, unfinished: StoredObject) -> None:
        """Remove one of :meth:`unfinished`; an active writer fails with a StoreError or starts again."""


@dataclass(frozen=True)
class StoreScheme:
    """A kind of store, by the scheme of its URLs."""

    open: Callable[[str, "StoreSettings"], Store]
    """returns the store at a URL; asks and makes nothing yet"""


def update(store: Store, name: str, decide: Callable[[bytes | None], bytes | None]) -> bool:
    """Change a small object by compare-and-swap; return whether it was changed.

    `decide` gets the content (None: the object does not exist) and returns the new content, or None to change nothing.
    It is called again if another writer was faster; a ConflictError if others are so again and again.
    """
    for _ in range(_ATTEMPTS):
        try:
            content, tag = store.read_tagged(name)
        except NotThereError:
            content, tag = None, None
        decided = decide(content)
        if decided is None:
            return False
        try:
            store.replace(name, decided, expected=tag)
        except ConflictError:
            continue
        return True
    raise conflict(store.url, name)


def check_name(name: str) -> tuple[str, ...]:
    """Return the parts of an object name; DataError if the name is not valid."""
    parts = tuple(name.split("/"))
    if not name.isprintable() or "\\" in name:
        reason = "it contains a control character or a backslash"
    elif any(not part or part.startswith(".") for part in parts):
        reason = "a part of it is empty or begins with a dot"
    elif len(name.encode()) > LONGEST_NAME or any(len(part.encode()) > LONGEST_PART for part in parts):
        reason = f"it is longer than {LONGEST_NAME} bytes, or a part of it longer than {LONGEST_PART}"
    else:
        return parts
    raise DataError(f"not a valid object name: {reason}", value=repr(name))


def not_there(url: str, name: str) -> NotThereError:
    """Return the error for an object that does not exist."""
    return NotThereError(
        f"the object does not exist in {url}", value=name, hint="check the name, store.url, and that it was published"
    )


def check_size(size: int, url: str, name: str) -> None:
    """Refuse an object that is too large to be read into memory."""
    if size > LARGEST_IN_MEMORY:
        raise DataError(
            f"the object in {url} is larger than {LARGEST_IN_MEMORY >> 20} MiB",
            value=name,
            hint="nothing that belongs there is so large: remove it, and find out who wrote it",
        )


def other_content(url: str, name: str) -> OtherContentError:
    """Return the error for an object that exists with other content."""
    return OtherContentError(
        f"the object exists in {url} with other content",
        value=name,
        hint="objects are written once: keep the existing one, or use another name",
    )


def conflict(url: str, name: str) -> ConflictError:
    """Return the error for an object that another writer has changed."""
    return ConflictError(f"another writer has changed this object in {url}", value=name, hint="run the command again")


def no_locks(url: str) -> StoreError:
    """Return the error for a lock in a store without Object Lock."""
    return StoreError(
        f"{url} has no Object Lock", hint="publish without a lock, or to an S3 bucket that was created with Object Lock"
    )


CHUNK = 1 << 20
_LARGE = 1 << 24
"""from this size on progress is shown"""


def sha256_of(content: bytes | Path) -> str:
    """Return the SHA-256 of content to store."""
    return sha256_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def sha256_pieces(pieces: Iterable[bytes]) -> str:
    """Return the SHA-256 of content in pieces."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def size_of(content: bytes | Path) -> int:
    """Return the size of content to store; DataError if the file does not exist."""
    if not isinstance(content, Path):
        return len(content)
    if not content.is_file():
        raise DataError("the file to store does not exist", file=content)
    return content.stat().st_size


def chunks_of(content: bytes | Path) -> Iterator[bytes]:
    """Yield content to store in chunks."""
    if not isinstance(content, Path):
        yield content
        return
    try:
        with content.open("rb") as stream:
            yield from chunks(stream)
    except OSError as error:
        raise DataError(f"the file to store cannot be read: {error.strerror}", file=content) from error


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a stream in chunks."""
    while chunk := stream.read(CHUNK):
        yield chunk


@contextmanager
def progress(what: str, size: int) -> Iterator[Callable[[int], object]]:
    """Within: a function that counts bytes. For large transfers on a terminal a progress bar shows them."""
    if size < _LARGE:
        yield lambda _: None
        return
    with progress_bar(total=size, desc=what, unit="B", unit_scale=True) as bar:
        yield bar.update


def check_digest(digest: str, expected: str | None, name: str, url: str) -> None:
    """Raise a VerificationError unless the digest is the expected one (None: any)."""
    if expected not in {None, digest}:
        raise VerificationError(
            f"the object in {url} does not have the expected digest",
            key=name,
            value=f"SHA-256 {digest}, expected {expected}",
            hint="the object was damaged or replaced: do not use it, and contact its publisher",
        )


def write_verified(pieces: Iterable[bytes], to: Path, *, sha256: str, size: int, name: str, url: str) -> None:
    """Write `pieces` to a file, completely and with this digest, or not at all."""
    digest = hashlib.sha256()
    try:
        with whole_file(to) as stream, progress(f"fetching {to.name}", size) as moved:
            for piece in pieces:
                digest.update(piece)
                stream.write(piece)
                moved(len(piece))
            check_digest(digest.hexdigest(), sha256, name, url)
    except OSError as error:
        raise MbdError(f"the object cannot be fetched to this file: {error.strerror}", file=to) from error

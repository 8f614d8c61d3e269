"""What every store offers, whatever lies behind it: named objects that appear whole or not at all.

Names are relative, with `/` between their parts (`certificates/…/bundle.json`), and no object's name is a folder of
another's. An object is created once (:meth:`Store.create`, the winner of a race is the only one), or it is a pointer
that moves by compare-and-swap (:meth:`Store.replace`). What is read is compared with the digest that the reader
expects.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

from mbd.errors import DataError, MbdError
from mbd.params.operations import StoreSettings

LockMode = Literal["GOVERNANCE", "COMPLIANCE"]
LONGEST_NAME = 800
LONGEST_PART = 200


class StoreError(MbdError):
    """The store could not do what was asked: unreachable, forbidden, or broken."""


class NotThereError(DataError):
    """There is no object of this name."""


class OtherContentError(MbdError):
    """An object of this name is there already, with other content."""


class ConflictError(MbdError):
    """Somebody else has moved the pointer in the meantime: read it again and decide again."""


class LockedError(MbdError):
    """The store keeps this object under Object Lock."""


@dataclass(frozen=True)
class Lock:
    """Object Lock of an object: until when, and how strictly."""

    mode: LockMode
    """GOVERNANCE (those with a special right may lift it) | COMPLIANCE (nobody may)"""
    until: datetime


@dataclass(frozen=True)
class StoredObject:
    """An object as the store holds it."""

    name: str
    size: int
    tag: str
    """names this state of the object, for :meth:`Store.replace`; empty in listings, which do not look that closely"""
    version: str | None = None
    """version id where the store keeps versions"""
    lock: Lock | None = None
    modified: datetime | None = None


class Store(Protocol):
    """A store. All methods raise StoreError (with a hint) when the store itself fails."""

    @property
    def url(self) -> str:
        """Where it is, without credentials."""

    @property
    def locks(self) -> bool:
        """Whether objects can be put under Object Lock."""

    def create(self, name: str, content: bytes | Path, *, lock: Lock | None = None) -> StoredObject:
        """Create an object if there is none; the same content again is fine, other content is OtherContentError.

        A Path is a file that may be large: it is streamed, in parts where the store has them, with progress.
        A lock is set where :attr:`locks` says that the store can; asking elsewhere is a StoreError. An object that is
        there already, without a lock, gets it; a lock that is there already stays as it is.
        """

    def replace(self, name: str, content: bytes, *, expected: str | None) -> StoredObject:
        """Write a small object if its tag still is `expected` (None: if there is none), else ConflictError.

        An object under Object Lock is no pointer: LockedError.
        """

    def read(self, name: str, *, sha256: str | None = None) -> bytes:
        """Return an object's bytes; NotThereError without it, VerificationError if the digest differs."""

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """Return an object's bytes and the tag of exactly this state."""

    def fetch(self, name: str, to: Path, *, sha256: str) -> None:
        """Write an object to a file, whole and with this digest, or not at all."""

    def pieces(self, stored: StoredObject) -> Iterator[bytes]:
        """Yield the bytes of exactly this version of an object, piece by piece; NotThereError without it."""

    def stat(self, name: str) -> StoredObject | None:
        """Return what the store says of an object, or None if it is not there."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose names start with `prefix` and come after `after`, in order of their UTF-8 bytes."""

    def versions(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield every version of the objects below `prefix`, delete markers (size 0, tag "") too."""

    def delete(self, objects: Iterable[StoredObject]) -> dict[StoredObject, str]:
        """Remove these (with a version: this version for good) in bulk; return the reason for each that stayed.

        What is not there is gone already.
        """

    def unfinished(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield what killed writers have left behind, and what others write just now; only `modified` may tell."""

    def abort(self, unfinished: StoredObject) -> None:
        """Remove one of :meth:`unfinished`; a writer still at work on it fails with a StoreError or begins again."""


@dataclass(frozen=True)
class StoreScheme:
    """A kind of store, by the scheme of its URLs."""

    open: Callable[[str, StoreSettings], Store]
    """returns the store at a URL; asks and makes nothing yet"""
    form: str
    """how its URLs are written, as in `file://FOLDER`"""


def check_name(name: str) -> tuple[str, ...]:
    """Return the parts of an object's name; a DataError where it could mean something else than an object."""
    parts = tuple(name.split("/"))
    if not name.isprintable() or "\\" in name:
        reason = "it has characters that cannot be printed, or a backslash"
    elif any(not part or part.startswith(".") for part in parts):
        reason = "a part of it is empty or begins with a dot"
    elif len(name.encode()) > LONGEST_NAME or any(len(part.encode()) > LONGEST_PART for part in parts):
        reason = f"it is longer than {LONGEST_NAME} bytes, or a part of it longer than {LONGEST_PART}"
    else:
        return parts
    raise DataError(f"this cannot be the name of an object in a store: {reason}", value=repr(name))


def not_there(url: str, name: str) -> NotThereError:
    """Return the error for an object that is missing."""
    return NotThereError(
        f"there is no such object in {url}", value=name, hint="check the name and store.url; has it been published?"
    )


def other_content(url: str, name: str) -> OtherContentError:
    """Return the error for a name that is taken."""
    return OtherContentError(
        f"an object of this name is in {url} already, with other content",
        value=name,
        hint="objects are written once: keep the one that is there, or give the new one another name",
    )


def conflict(url: str, name: str) -> ConflictError:
    """Return the error for a pointer that is no longer where it was."""
    return ConflictError(
        f"somebody else has moved this pointer in {url} in the meantime",
        value=name,
        hint="run the command again: it starts from what is there now",
    )


def no_locks(url: str) -> StoreError:
    """Return the error for a lock where there are none."""
    return StoreError(
        f"{url} has no Object Lock",
        hint="publish without a lock, or to an S3 bucket that was made with Object Lock",
    )

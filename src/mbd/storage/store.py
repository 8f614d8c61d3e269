"""What every store offers, whatever lies behind it: named objects that appear whole or not at all.

Names are relative, with `/` between their parts (`certificates/…/bundle.json`). An object is created once
(:meth:`Store.create`, the winner of a race is the only one), or it is a pointer that moves by compare-and-swap
(:meth:`Store.replace`). What is read is compared with the digest that the reader expects.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from mbd.errors import DataError, MbdError


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

    mode: str
    """GOVERNANCE | COMPLIANCE"""
    until: datetime


@dataclass(frozen=True)
class Stored:
    """An object as the store holds it."""

    name: str
    size: int
    tag: str
    """names this state of the object, for :meth:`Store.replace` (an ETag, or a digest)"""
    version: str | None = None
    """version id where the store keeps versions"""
    lock: Lock | None = None
    modified: datetime | None = None


class Store(Protocol):
    """A store. All methods raise StoreError (with a way out) when the store itself fails."""

    @property
    def url(self) -> str:
        """Where it is, without credentials."""

    def create(self, name: str, content: bytes | Path, *, lock: Lock | None = None) -> Stored:
        """Create an object if there is none; the same content again is fine, other content is OtherContentError.

        A Path is a file that may be large: it is streamed, in parts where the store has them, with progress.
        A lock is set where :attr:`locks` says that the store can; asking elsewhere is a StoreError.
        """

    def replace(self, name: str, content: bytes, *, expected: str | None) -> Stored:
        """Write a small object if its tag still is `expected` (None: if there is none), else ConflictError."""

    def read(self, name: str, *, sha256: str | None = None) -> bytes:
        """Return an object's bytes; NotThereError without it, VerificationError if the digest differs."""

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """Return an object's bytes and the tag of exactly this state."""

    def fetch(self, name: str, to: Path, *, sha256: str) -> None:
        """Write an object to a file, whole and with this digest, or not at all."""

    def stat(self, name: str) -> Stored | None:
        """Return what the store says of an object, or None if it is not there."""

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[Stored]:
        """Yield the objects whose names start with `prefix` and come after `after`, in order of their UTF-8 bytes."""

    def versions(self, prefix: str = "") -> Iterator[Stored]:
        """Yield every version of the objects below `prefix`, delete markers (size 0, tag "") too."""

    def delete(self, objects: Iterable[Stored]) -> dict[str, str]:
        """Remove these (with a version: this version for good) in bulk; return the reason for each that stayed."""

    @property
    def locks(self) -> bool:
        """Whether objects can be put under Object Lock."""

"""Bytes on their way between files and stores: in chunks, counted, with their digest."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tqdm import tqdm

from mbd.errors import DataError, MbdError, VerificationError
from mbd.files import sha256_file

CHUNK = 1 << 20
_LARGE = 1 << 24
"""from here on a person may want to see progress"""


def sha256_of(content: bytes | Path) -> str:
    """Return the SHA-256 of what is to be stored."""
    return sha256_file(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()


def size_of(content: bytes | Path) -> int:
    """Return the size of what is to be stored; a DataError if it is no file."""
    if not isinstance(content, Path):
        return len(content)
    if not content.is_file():
        raise DataError("there is no such file to store", file=content)
    return content.stat().st_size


def chunks_of(content: bytes | Path) -> Iterator[bytes]:
    """Yield what is to be stored piece by piece."""
    if not isinstance(content, Path):
        yield content
        return
    try:
        with content.open("rb") as stream:
            yield from chunks(stream)
    except OSError as error:
        raise DataError(f"the file to store cannot be read: {error.strerror}", file=content) from error


def chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the rest of a stream piece by piece."""
    while chunk := stream.read(CHUNK):
        yield chunk


@contextmanager
def progress(what: str, size: int) -> Iterator[Callable[[int], object]]:
    """Give a function that counts bytes; for something large, and only on a terminal, a bar shows them."""
    if size < _LARGE:
        yield lambda _: None
        return
    with tqdm(total=size, desc=what, unit="B", unit_scale=True, disable=None) as bar:
        yield bar.update


def check_digest(found: str, expected: str | None, name: str, url: str) -> None:
    """Compare a digest with the one that the reader expects."""
    if expected not in {None, found}:
        raise VerificationError(
            f"the object in {url} is not the one that is expected: its digest differs",
            key=name,
            value=f"SHA-256 {found}, expected {expected}",
            hint="the object has been damaged or exchanged: do not use it, and ask who published it",
        )


def write_verified(pieces: Iterable[bytes], to: Path, *, sha256: str, size: int, name: str, url: str) -> None:
    """Write `pieces` to a file that appears whole and with this digest, or not at all."""
    digest = hashlib.sha256()
    with _whole_file(to) as stream, progress(f"fetching {to.name}", size) as moved:
        for piece in pieces:
            digest.update(piece)
            stream.write(piece)
            moved(len(piece))
        check_digest(digest.hexdigest(), sha256, name, url)


@contextmanager
def _whole_file(to: Path) -> Iterator[BinaryIO]:
    temporary: Path | None = None
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        handle, path = tempfile.mkstemp(dir=to.parent, prefix=f".{to.name[:100]}.partial.")
        temporary = Path(path)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(to)
    except OSError as error:
        raise MbdError(f"the object cannot be fetched to this file: {error.strerror}", file=to) from error
    finally:
        if temporary:
            temporary.unlink(missing_ok=True)

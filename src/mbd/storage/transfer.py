"""Transfer between files and stores: in chunks, with progress and digest."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mbd.errors import DataError, MbdError, VerificationError
from mbd.files import sha256_file, whole_file
from mbd.logs import progress_bar

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

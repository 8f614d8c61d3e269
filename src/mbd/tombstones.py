"""Refuse purged files: the digests of what a step reads or writes are compared with a list of tombstones.

The list is set for the time of a step (:func:`used`; :mod:`mbd.steps.step` does it, from `purge.tombstones`). It is
read when the first digest is checked. Without a list, or with an empty one, nothing is refused.

`purge.tombstones` is a file that every purge and scan updates (:func:`read_digests`), or the URL of a store, whose
tombstones are read as :mod:`mbd.history.tombstones` describes.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from mbd.errors import DataError
from mbd.files import write_file

_read: Callable[[], frozenset[str]] | None = None


@contextmanager
def used(read: Callable[[], frozenset[str]]) -> Iterator[None]:
    """Within: the SHA-256 digests that `read` returns are refused. It is called once at most."""
    global _read  # noqa: PLW0603 -- one list for the process and all its threads
    before, _read = _read, cache(read)
    try:
        yield
    finally:
        _read = before


def listed() -> frozenset[str]:
    """Return the digests that are refused now."""
    return _read() if _read is not None else frozenset()


def refuse(digests: Iterable[str], where: object, hint: str) -> None:
    """Raise a DataError if one of these SHA-256 digests has a tombstone."""
    purged = listed()
    for digest in digests if purged else ():
        if digest in purged:
            raise DataError(
                "this file was purged because a modality was revoked, and must not come back",
                file=str(where),
                value=f"sha256 {digest}",
                hint=hint,
            )


def read_digests(file: Path) -> frozenset[str]:
    """Return the digests in a list; none if the file does not exist."""
    try:
        return frozenset(file.read_text(encoding="ascii").split())
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            "the list of tombstones cannot be read",
            file=file,
            hint="remove it; `mbd purge scan --store URL` writes it again",
        ) from error


def write_digests(file: Path, digests: Iterable[str]) -> None:
    """Write a list of digests."""
    write_file(file, "".join(f"{digest}\n" for digest in sorted(digests)))

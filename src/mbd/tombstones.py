"""Refuse purged files: the digests of what a step reads or writes are compared with a list of tombstones.

The list is set for the time of a step (:func:`used`; :mod:`mbd.steps.step` does it, from `purge.tombstones`). It is
read when the first digest is checked. Without a list, or with an empty one, nothing is refused.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from mbd.errors import DataError

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

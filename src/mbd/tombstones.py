"""The one check that keeps purged files away: whatever a step reads or writes is held against a list of digests.

Where the list comes from is said once (:func:`use`, by the command line from `purge.tombstones`); it is read when the
first digest is checked. Without a list, or with an empty one, nothing is refused and nothing is read.
"""

from collections.abc import Callable, Iterable
from functools import cache

from mbd.errors import DataError

_read: Callable[[], frozenset[str]] | None = None


def use(read: Callable[[], frozenset[str]] | None) -> None:
    """Let `read` (called at most once) say which SHA-256 digests are refused from now on; None: none is."""
    global _read  # noqa: PLW0603 -- one list for the process, as for its working folder
    _read = cache(read) if read else None


def refuse(digests: Iterable[str], where: object, hint: str) -> None:
    """Raise a DataError if one of these SHA-256 digests has a tombstone."""
    if _read is None or not (buried := _read()):
        return
    for digest in digests:
        if digest in buried:
            raise DataError(
                "this file was purged because a modality was revoked, and must not come back",
                file=str(where),
                value=f"sha256 {digest}",
                hint=hint,
            )

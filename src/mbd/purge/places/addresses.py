"""Places that are configured by a path or a URL: a folder, a bucket, or something that cannot be searched."""

from pathlib import Path

from mbd.errors import MbdError
from mbd.params.operations import StoreSettings
from mbd.purge.places.buckets import BucketPlace
from mbd.purge.places.folders import Folder
from mbd.purge.places.place import Place, Unsearchable
from mbd.registry import STORES
from mbd.storage import folder_of, open_store
from mbd.urls import without_credentials


def local_path(url: str) -> Path | None:
    """Return the folder of a path or a `file://` URL; None for other URLs."""
    if url.startswith("file://"):
        return folder_of(url)
    return None if "://" in url else Path(url)


def place_at(
    kind: str,
    url: str,
    settings: StoreSettings,
    others: frozenset[Path],
    *,
    by_name: bool = False,
    runs: bool = False,
    prefixes: tuple[str, ...] = ("",),
) -> Place:
    """Return the place at a path or a URL."""
    path = local_path(url)
    if path is not None:
        return Folder(kind, path, others, by_name=by_name, expected=True)
    where = without_credentials(url)
    if url.partition("://")[0] not in STORES.names():
        return Unsearchable(
            kind, where, "only folders and stores can be searched", "remove the old files there by hand, all versions"
        )
    try:
        return BucketPlace(kind, open_store(url, settings), by_name=by_name, runs=runs, prefixes=prefixes)
    except MbdError as error:
        return Unsearchable(kind, where, error.problem, error.hint or "correct the address")

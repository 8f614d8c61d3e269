"""A place that the parameters name by a path or a URL: a folder, a bucket, or something that cannot be searched."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mbd.errors import MbdError
from mbd.params.operations import StoreSettings
from mbd.purge.places.buckets import BucketPlace
from mbd.purge.places.folders import Folder
from mbd.purge.places.place import Copy, Obstacle, Place, Tell
from mbd.purge.targets import Targets
from mbd.registry import STORES
from mbd.storage import folder_of, open_store
from mbd.urls import without_credentials


@dataclass(frozen=True)
class Unsearchable:
    """A place that is known of, and that nothing here can look into."""

    kind: str
    where: str
    problem: str
    hint: str

    def find(self, targets: Targets, tell: Tell) -> Iterator[Copy]:
        """Tell that it cannot be searched."""
        tell(Obstacle("it could not be searched", f"{self.where}: {self.problem}", self.hint))
        yield from ()

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """Nothing is ever found here."""
        return {}


def local_path(url: str) -> Path | None:
    """Return the folder that a path or a `file://` URL names; None for other URLs."""
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
            kind, where, "only folders and stores can be searched", "remove the old files there yourself, all versions"
        )
    try:
        return BucketPlace(kind, open_store(url, settings), by_name=by_name, runs=runs, prefixes=prefixes)
    except MbdError as error:
        return Unsearchable(kind, where, error.problem, error.hint or "correct the address")

"""The places of a DVC repository: its cache, run cache, temporary folders and remotes, as DVC's configuration has them.

Credentials for S3 remotes come from the environment, as for every store; `.dvc/config.local` is not read for them. In a
cloud-versioned remote objects have the names of files, so copies are found by size and SHA-256.
"""

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from mbd.errors import DataError, MbdError, UsageError
from mbd.params.operations import StoreSettings
from mbd.purge.places import Place
from mbd.purge.places.buckets import BucketPlace, local_path, place_at
from mbd.purge.places.folders import Folder, RunCache
from mbd.storage.folder import FolderStore
from mbd.storage.store import Store
from mbd.urls import without_credentials

_SHARED = (
    "other repositories may use this cache: make sure that none needs these files, "
    "then set purge.shared_caches=true and purge again"
)
_LAYOUTS = ("files/md5/", "")
"""prefixes of objects: of DVC 3, and of earlier versions"""


@dataclass(frozen=True)
class Remote:
    """A DVC remote."""

    url: str
    """a path, or a URL without credentials"""
    endpoint: str | None
    by_name: bool
    """whether objects are named by their digest; not in cloud-versioned remotes"""


@dataclass(frozen=True)
class DvcRepository:
    """Where a DVC repository stores data."""

    root: Path
    cache: Path
    shared_cache: bool
    """whether other repositories may use the same cache"""
    temporary: tuple[Path, ...]
    """`.dvc/tmp` (with the workspaces of experiments) and the site cache"""
    remotes: tuple[Remote, ...]


def dvc_repository(folder: Path) -> DvcRepository | None:
    """Return the DVC repository that contains `folder`, or None."""
    if not any((parent / ".dvc").is_dir() for parent in (folder.absolute(), *folder.absolute().parents)):
        return None
    from dvc.exceptions import DvcException, NotDvcRepoError  # noqa: PLC0415 -- takes half a second
    from dvc.repo import Repo  # noqa: PLC0415

    try:
        repo = Repo(str(folder))
    except NotDvcRepoError:
        return None
    except DvcException as error:
        raise UsageError(without_credentials(str(error)), file=folder, hint="correct .dvc/config") from error
    with closing(repo):
        root, cache = Path(repo.root_dir), Path(repo.cache.legacy.path)
        outside = not cache.resolve().is_relative_to(root.resolve())
        return DvcRepository(
            root=root,
            cache=cache,
            shared_cache=outside or repo.config["cache"].get("shared") is not None,
            temporary=(Path(repo.tmp_dir), Path(repo.site_cache_dir)),
            remotes=tuple(
                Remote(
                    url=without_credentials(str(options["url"])),
                    endpoint=options.get("endpointurl"),
                    by_name=not (options.get("version_aware") or options.get("worktree")),
                )
                for options in repo.config["remote"].values()
            ),
        )


def dvc_cache(repository: DvcRepository, others: frozenset[Path], *, shared_caches: bool) -> list[Place]:
    """Return the cache, the run cache and the temporary folders (with the workspaces of experiments)."""
    keep = _SHARED if repository.shared_cache and not shared_caches else None
    return [
        Folder("DVC cache", repository.cache, others, by_name=True, keep=keep),
        RunCache("DVC run cache", repository.cache / "runs"),
        *(Folder("DVC temporary folder", folder, others) for folder in repository.temporary),
    ]


def dvc_remotes(repository: DvcRepository, settings: StoreSettings, others: frozenset[Path]) -> list[Place]:
    """Return the remotes, each once, with the run caches of those that are folders."""
    places: list[Place] = []
    for remote in {remote.url: remote for remote in repository.remotes}.values():
        own = settings.model_copy(update={"endpoint": remote.endpoint})
        places.append(place_at("DVC remote", remote.url, own, others, by_name=remote.by_name, runs=True))
        if (path := local_path(remote.url)) is not None:
            places.append(RunCache("DVC run cache of a remote", path / "runs"))
    return places


def object_reader(places: Iterable[Place]) -> Callable[[str], bytes | None]:
    """Return a function that reads a small object of DVC by its MD5, from the first of these places that holds it."""
    named = [place for place in places if isinstance(place, Folder | BucketPlace) and place.by_name]
    folders: list[Store] = [FolderStore(place.root) for place in named if isinstance(place, Folder)]
    stores = folders + [place.store for place in named if isinstance(place, BucketPlace)]

    failed: list[Store] = []

    def read(md5: str) -> bytes | None:
        for store, layout in product(stores, _LAYOUTS):
            try:
                if store not in failed:
                    return store.read(f"{layout}{md5[:2]}/{md5[2:]}")
            except DataError:  # not there, or too large for a list of files
                continue
            except MbdError:  # the search of this place reports that it cannot be read
                if store not in folders:
                    failed.append(store)
        return None

    return read

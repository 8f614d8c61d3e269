"""The places of a DVC repository: its cache, run cache, temporary folders and remotes, as DVC's configuration has them.

Credentials for S3 remotes come from the environment, as for every store; `.dvc/config.local` is not read for them. In a
cloud-versioned remote objects have the names of files, so copies are found by size and SHA-256.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.errors import DataError, MbdError, UsageError
from mbd.params.operations import StoreSettings
from mbd.purge.places import Place
from mbd.purge.places.buckets import BucketPlace, local_path, place_at
from mbd.purge.places.folders import Folder, RunCache
from mbd.storage.store import Store
from mbd.urls import without_credentials

_SHARED = (
    "other repositories may use this cache: make sure that none needs these files, "
    "then set purge.shared_caches=true and purge again"
)
_LAYOUTS = ("files/md5/", "")
"""prefixes of objects: of DVC 3, and of earlier versions"""
_LARGEST_OBJECT = 1 << 26


@dataclass(frozen=True)
class Remote:
    """A DVC remote."""

    name: str
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
    try:
        return _facts(repo)
    finally:
        repo.close()


def _facts(repo: Any) -> DvcRepository:  # noqa: ANN401 -- DVC has no types
    root, cache = Path(repo.root_dir), Path(repo.cache.legacy.path)
    outside = not cache.resolve().is_relative_to(root.resolve())
    return DvcRepository(
        root=root,
        cache=cache,
        shared_cache=outside or repo.config["cache"].get("shared") is not None,
        temporary=(Path(repo.tmp_dir), Path(repo.site_cache_dir)),
        remotes=tuple(_remote(name, options) for name, options in repo.config["remote"].items()),
    )


def _remote(name: str, options: Mapping[str, Any]) -> Remote:
    return Remote(
        name=name,
        url=without_credentials(str(options["url"])),
        endpoint=options.get("endpointurl"),
        by_name=not (options.get("version_aware") or options.get("worktree")),
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
    places = list(places)
    folders = [place.root for place in places if isinstance(place, Folder) and place.by_name]
    stores = [place.store for place in places if isinstance(place, BucketPlace) and place.by_name]

    def read(md5: str) -> bytes | None:
        names = [f"{layout}{md5[:2]}/{md5[2:]}" for layout in _LAYOUTS]
        contents = (_from_folder(folder / name) for folder in folders for name in names)
        content = next((content for content in contents if content is not None), None)
        for store in list(stores) if content is None else ():
            try:
                content = _from_store(store, names)
            except MbdError:
                stores.remove(store)  # the search of this place reports that it cannot be read
            if content is not None:
                break
        return content

    return read


def _from_folder(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= _LARGEST_OBJECT else None
    except OSError:
        return None


def _from_store(store: Store, names: list[str]) -> bytes | None:
    for name in names:
        try:
            return store.read(name)
        except DataError:  # not there, or too large for a list of files
            continue
    return None

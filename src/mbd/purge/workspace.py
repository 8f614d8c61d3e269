"""The workspace of a purge: all places that may hold copies, and the git history. Start at :func:`workspace`.

The places of a DVC repository are its cache, run cache, temporary folders and remotes, as DVC's configuration has them.
Credentials for S3 remotes come from the environment, as for every store; `.dvc/config.local` is not read for them. In a
cloud-versioned remote objects have the names of files, so copies are found by size and SHA-256.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from mbd.errors import DataError, MbdError, UsageError
from mbd.git import git
from mbd.params import Params
from mbd.params.operations import StoreSettings
from mbd.purge.history import GitHistory, GitObjects, inside_git
from mbd.purge.places import Folder, Place, RunCache, Unsearchable, WholeFolder, files_below
from mbd.purge.remote_places import BucketPlace, MlflowPlace, local_path, place_at
from mbd.storage import private_url
from mbd.storage.folder import FolderStore
from mbd.storage.mlflow import MlflowRegistry
from mbd.storage.store import Store
from mbd.urls import without_credentials

PIPELINE_ROOT = "Kubeflow pipeline root"
_FILES, _WORKING_FILES = "objects/", "batches/files/"
_SHARED = (
    "other repositories may use this cache: make sure that none needs these files, "
    "then set purge.shared_caches=true and purge again"
)
_LAYOUTS = ("files/md5/", "")
"""prefixes of objects: of DVC 3, and of earlier versions"""


@dataclass(frozen=True)
class Workspace:
    """A workspace, the places connected with it, and its git history."""

    root: Path
    places: tuple[Place, ...]
    history: GitHistory


def workspace(params: Params, store: str, *, root: Path | None = None, modalities: tuple[str, ...] = ()) -> Workspace:
    """Return the places of a workspace. Nothing is searched yet.

    Args:
        params: all parameters.
        store: URL of the store.
        root: top folder of the workspace; default: the git repository of the current folder, or the folder itself.
        modalities: modalities whose cached vectors are all removed.

    """
    root = root or _top_folder()
    repositories = _repositories(root)
    others = frozenset(path.resolve() for path in _roots(params, store, root, repositories))
    places: list[Place] = [Folder("workspace", root, others)]
    for repository in repositories:
        places += dvc_cache(repository, others, shared_caches=params.purge.shared_caches)
        places += dvc_remotes(repository, params.store, others)
    history = GitHistory(root, object_reader(places))
    places += [GitObjects(root)] if history.in_git else []
    places += _store(params, store, others)
    places.append(Folder("local pipeline outputs", root / params.purge.kfp_root, others))
    places += [Folder("temporary folder", folder, others) for folder in _temporary()]
    places += _pipeline_root(params, others)
    places += [place_at("named in purge.folders", url, params.store, others) for url in params.purge.folders]
    places += [MlflowPlace(MlflowRegistry(params.mlflow))] if params.mlflow.model else []
    vectors = root / params.features.source.media.cache
    places += [WholeFolder("cached vectors", vectors / modality) for modality in modalities]
    return Workspace(root, tuple(_unique(places)), history)


def _top_folder() -> Path:
    """Return the top folder of the git repository of the current folder, or the current folder."""
    if not inside_git(Path.cwd()):
        return Path.cwd()
    top = git("rev-parse", "--show-toplevel")
    return Path(top.stdout.strip()) if top.returncode == 0 else Path.cwd()


def _store(params: Params, url: str, others: frozenset[Path]) -> list[Place]:
    """Return the parts of a store that hold files; certificates, log, requests and tombstones are not searched."""
    places: list[Place] = []
    for address, prefix in ((url, _FILES), (private_url(url, params.store), _WORKING_FILES)):
        folder = local_path(address)
        if folder is not None:
            places += [
                Folder("store", folder / part, others, by_name=True, opened=False) for part in (prefix, ".partial")
            ]
        else:
            places.append(place_at("store", address, params.store, others, by_name=True, prefixes=(prefix,)))
    return places


def _repositories(root: Path) -> "list[DvcRepository]":
    """Return the DVC repository that contains the workspace, and those inside it."""
    others = frozenset({(root / ".git").resolve()})
    configs = (path for path in files_below(root, others, lambda _: None) if path.match(".dvc/config"))
    # Workspaces of experiments below `.dvc/tmp` are not separate repositories.
    below = [path.parents[1] for path in configs if ".dvc" not in path.parents[1].relative_to(root).parts]
    repositories = (dvc_repository(folder) for folder in (root, *below))
    return list({repository.root: repository for repository in repositories if repository}.values())


def _roots(params: Params, store: str, root: Path, repositories: "list[DvcRepository]") -> Iterator[Path]:
    """Yield the root folders of all places, so that none is searched as a part of another."""
    yield from (root, root / ".git", root / params.purge.kfp_root)
    named = [store, private_url(store, params.store), params.platform.pipeline_root or "", *params.purge.folders]
    for repository in repositories:
        yield from (repository.cache, *repository.temporary)
        named += [remote.url for remote in repository.remotes]
    yield from (path for url in named if url and (path := local_path(url)) is not None)


def _pipeline_root(params: Params, others: frozenset[Path]) -> list[Place]:
    kind, url = PIPELINE_ROOT, params.platform.pipeline_root
    if url:
        return [place_at(kind, url.replace("minio://", "s3://", 1), params.store, others)]
    if params.platform.kubeflow_host:
        return [
            Unsearchable(kind, params.platform.kubeflow_host, "its address is not known", "set platform.pipeline_root")
        ]
    return []


def _temporary() -> list[Path]:
    """Return the temporary folders that killed steps have left behind."""
    return sorted(path for path in Path(tempfile.gettempdir()).glob("mbd-*") if path.is_dir() and not path.is_symlink())


def _unique(places: list[Place]) -> Iterator[Place]:
    """Yield each place once: a store and a DVC remote may share a bucket."""
    met = set()
    for place in places:
        here = (type(place), place.where)
        if here not in met:
            met.add(here)
            yield place


# The places of a DVC repository


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

"""The workspace of a purge: all places that may hold copies, and the git history. Start at :func:`workspace`."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mbd.git import git
from mbd.params import Params
from mbd.purge.history import GitHistory, GitObjects, inside_git
from mbd.purge.places import Place, Unsearchable
from mbd.purge.places.buckets import local_path, place_at
from mbd.purge.places.dvc import DvcRepository, dvc_cache, dvc_remotes, dvc_repository, object_reader
from mbd.purge.places.folders import Folder, WholeFolder, files_below
from mbd.purge.places.mlflow import MlflowPlace
from mbd.storage import private_url
from mbd.storage.mlflow import MlflowRegistry

PIPELINE_ROOT = "Kubeflow pipeline root"
_FILES, _WORKING_FILES = "objects/", "batches/files/"


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


def _repositories(root: Path) -> list[DvcRepository]:
    """Return the DVC repository that contains the workspace, and those inside it."""
    others = frozenset({(root / ".git").resolve()})
    configs = (path for path in files_below(root, others, lambda _: None) if path.match(".dvc/config"))
    # Workspaces of experiments below `.dvc/tmp` are not separate repositories.
    below = [path.parents[1] for path in configs if ".dvc" not in path.parents[1].relative_to(root).parts]
    repositories = (dvc_repository(folder) for folder in (root, *below))
    return list({repository.root: repository for repository in repositories if repository}.values())


def _roots(params: Params, store: str, root: Path, repositories: list[DvcRepository]) -> Iterator[Path]:
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

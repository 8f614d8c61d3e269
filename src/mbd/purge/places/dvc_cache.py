"""The DVC cache of a repository, with its run cache, and DVC's temporary folders (with workspaces of experiments)."""

from pathlib import Path

from mbd.purge.places.dvc_repository import DvcRepositoryPlace
from mbd.purge.places.folders import Folder, RunCache
from mbd.purge.places.place import Place

_SHARED = (
    "other repositories may use this cache: make sure that none needs these files, "
    "then set purge.shared_caches=true and purge again"
)


def dvc_cache(repository: DvcRepositoryPlace, others: frozenset[Path], *, shared_caches: bool) -> list[Place]:
    """Return the cache and the folders beside it."""
    keep = _SHARED if repository.shared_cache and not shared_caches else None
    return [
        Folder("DVC cache", repository.cache, others, by_name=True, keep=keep),
        RunCache(repository.cache / "runs"),
        *(Folder("DVC temporary folder", folder, others) for folder in repository.temporary),
    ]

"""What DVC itself says of the repository around a folder: its cache, its temporary folders, its remotes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.errors import MissingExtraError, UsageError
from mbd.urls import without_credentials


@dataclass(frozen=True)
class Remote:
    """A DVC remote."""

    name: str
    url: str
    """a path, or a URL without credentials"""
    endpoint: str | None
    by_name: bool
    """whether objects have the names that their digests give; not in cloud-versioned remotes"""


@dataclass(frozen=True)
class DvcRepositoryPlace:
    """Where a DVC repository keeps data."""

    root: Path
    cache: Path
    shared_cache: bool
    """whether other repositories may use the same cache"""
    temporary: tuple[Path, ...]
    """`.dvc/tmp` (with the workspaces of experiments) and the site cache"""
    remotes: tuple[Remote, ...]


def dvc_repository(folder: Path) -> DvcRepositoryPlace | None:
    """Return the DVC repository that `folder` is in, or None if it is in none."""
    if not any((parent / ".dvc").is_dir() for parent in (folder.absolute(), *folder.absolute().parents)):
        return None
    try:
        from dvc.exceptions import DvcException, NotDvcRepoError  # noqa: PLC0415 -- takes half a second
        from dvc.repo import Repo  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("a purge in a DVC repository", "data", "dvc") from error
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


def _facts(repo: Any) -> DvcRepositoryPlace:  # noqa: ANN401 -- DVC has no types
    root, cache = Path(repo.root_dir), Path(repo.cache.legacy.path)
    outside = not cache.resolve().is_relative_to(root.resolve())
    return DvcRepositoryPlace(
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

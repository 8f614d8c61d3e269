"""The remotes of a DVC repository: folders, and buckets with all versions of their objects.

Credentials for S3 are those of the environment, as everywhere in this software; what `.dvc/config.local` holds is not
read. In a cloud-versioned remote objects have the names of files, so they are known by size and SHA-256.
"""

from pathlib import Path

from mbd.params.operations import StoreSettings
from mbd.purge.places.dvc_repository import DvcRepositoryPlace, Remote
from mbd.purge.places.elsewhere import local_path, place_at
from mbd.purge.places.folders import RunCache
from mbd.purge.places.place import Place

KIND = "DVC remote"


def dvc_remotes(repository: DvcRepositoryPlace, settings: StoreSettings, others: frozenset[Path]) -> list[Place]:
    """Return every remote, each once."""
    found: list[Place] = []
    for remote in {remote.url: remote for remote in repository.remotes}.values():
        endpoint = {"endpoint": remote.endpoint}
        own = settings.model_copy(update=endpoint)
        found.append(place_at(KIND, remote.url, own, others, by_name=remote.by_name, runs=True))
        if (runs := _runs(remote)) is not None:
            found.append(RunCache(runs, kind="DVC run cache of a remote"))
    return found


def _runs(remote: Remote) -> Path | None:
    path = local_path(remote.url)
    return path / "runs" if path else None

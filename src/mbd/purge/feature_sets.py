"""The FeatureSets around a workspace: those that folders hold, and those that any revision names."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from mbd.features.contract import MANIFEST
from mbd.purge.places import Workspace
from mbd.purge.places.folders import Folder


@dataclass(frozen=True)
class FeatureFiles:
    """The files of a FeatureSet: SHA-256 by relative path."""

    name: str
    """of the data"""
    files: dict[str, str]

    def of(self, modalities: Iterable[str]) -> set[str]:
        """Return the digests of the files of these modalities."""
        wanted = set(modalities)
        return {digest for path, digest in self.files.items() if PurePosixPath(path).stem in wanted}


def feature_sets(workspace: Workspace) -> list[FeatureFiles]:
    """Return every FeatureSet that is here or that a revision names."""
    found = [_parse(record) for record in (*_in_folders(workspace), *workspace.history.records(MANIFEST))]
    return [one for one in found if one]


def _in_folders(workspace: Workspace) -> Iterator[Any]:
    for place in workspace.places:
        for path in place.files() if isinstance(place, Folder) and not place.by_name else ():
            if path.name == MANIFEST:
                try:
                    yield json.loads(path.read_bytes())
                except (OSError, ValueError):
                    continue


def _parse(record: Any) -> FeatureFiles | None:  # noqa: ANN401 -- any JSON
    try:
        files = {path: digest for split in record["splits"].values() for path, digest in split["files"].items()}
        return FeatureFiles(str(record["name"]), files)
    except (KeyError, TypeError, AttributeError):
        return None

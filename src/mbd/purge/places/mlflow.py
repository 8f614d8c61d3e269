"""An MLflow server: the versions of a registered model, and the runs and logged models of their experiments.

Files are compared by content. A version with a purged file is removed with all its files; of other runs, the file
alone. MLflow removes no file when a version or a run is deleted, so these are removed by their addresses.
"""

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mbd.errors import MbdError
from mbd.formats.purge import Copy, Obstacle
from mbd.purge.contents import ENDINGS
from mbd.purge.places import copy_of, copy_within, unsearched
from mbd.purge.targets import ReportObstacle, Targets
from mbd.storage.mlflow import MlflowRegistry

_HINT = "the server must be reachable and allow what is asked; then purge again"


@dataclass(frozen=True)
class MlflowPlace:
    """The registered model `mlflow.model`."""

    registry: MlflowRegistry
    kind: str = "MLflow registry"

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.Place.where`."""
        return f"{self.registry.where} models:/{self.registry.settings.model}"

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.Place.find`."""
        try:
            versions = self.registry.versions()
            places: dict[str, str | None] = {version.location.rstrip("/"): version.number for version in versions}
            for location in self.registry.other_locations(versions):
                places.setdefault(location.rstrip("/"), None)
            met: set[str] = set()
            for location, version in places.items():
                for copy in self._copies(location, version, targets, report_obstacle):
                    if copy.name not in met:  # the files of a version are among those of its run
                        met.add(copy.name)
                        yield copy
        except MbdError as error:
            report_obstacle(unsearched(self.where, error, _HINT))

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.Place.remove`."""
        stayed: dict[Copy, Obstacle] = {}
        gone: set[str] = set()
        for copy in copies:
            try:
                self.registry.remove(copy.name, copy.version if copy.version not in gone else None)
                gone.update([copy.version] if copy.version else [])
            except MbdError as error:
                reason, detail = "a version could not be removed", f"{copy.name}: {error.problem}"
                stayed[copy] = Obstacle(reason=reason, detail=detail, hint=error.hint or _HINT)
        return stayed

    def _copies(
        self, location: str, version: str | None, targets: Targets, report_obstacle: ReportObstacle
    ) -> Iterator[Copy]:
        for artifact in self.registry.files(location):
            size, target = artifact.size or 0, None
            if artifact.size is None or targets.may_be(artifact.size):
                target = targets.by_sha256(self.registry.sha256(artifact))
            if target:
                yield copy_of(target, artifact.name, size, version=version)
            elif artifact.path.endswith(ENDINGS):
                name, more = artifact.name, {"version": version}
                folder = tempfile.TemporaryDirectory()
                with folder as into, self.registry.fetch(artifact, Path(into)).open("rb") as stream:
                    yield from copy_within(stream, name, targets, report_obstacle, name, size, **more)

"""Buckets and registries: what is searched over the network.

Buckets are listed with all versions of their objects, in pages, and objects removed in batches of a thousand.

Of an MLflow server these are the versions of a registered model, and the runs and logged models of their experiments.
Files are compared by content. A version with a purged file is removed with all its files; of other runs, the file
alone. MLflow removes no file when a version or a run is deleted, so these are removed by their addresses.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from mbd.errors import MbdError
from mbd.formats.purge import Copy, Obstacle
from mbd.params.operations import StoreSettings
from mbd.purge.contents import ENDINGS, ReportObstacle, Targets
from mbd.purge.places import Folder, Place, Unsearchable, copy_of, copy_within, named_by, names_output
from mbd.registry import STORES
from mbd.storage import folder_of, open_store
from mbd.storage.mlflow import MlflowRegistry
from mbd.storage.store import NotThereError, Store, StoredObject, sha256_pieces
from mbd.urls import without_credentials

_RUNS = "runs/"
_HINT = "the server must be reachable and allow what is asked; then purge again"


@dataclass(frozen=True)
class BucketPlace:
    """The objects of a store whose names begin with one of `prefixes`."""

    kind: str
    store: Store
    by_name: bool = False
    """whether digests in object names are trusted, as in DVC remotes and stores"""
    runs: bool = False
    """whether it holds a run cache of DVC"""
    prefixes: tuple[str, ...] = ("",)

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.Place.where`."""
        return self.store.url

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.Place.find`."""
        known = Targets(t for t in targets if t.size is not None)
        nameless = targets.without_md5 if self.by_name else targets
        if unknown := [t.sha256 for t in nameless if t.size is None]:
            report_obstacle(_unknown(self.where, unknown))
        for prefix in self.prefixes:
            yield from self._objects(prefix, targets, known, report_obstacle)
            yield from self._uploads(prefix, targets)

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.Place.remove`."""
        stayed, copies = {}, list(copies)
        by_object = {StoredObject(c.name, c.size, "", c.version): c for c in copies if c.upload is None}
        uploads = [c for c in copies if c.upload is not None]
        try:
            for upload in uploads:
                self.store.abort(StoredObject(upload.name, 0, upload.upload or ""))
            for stored, reason in self.store.delete(by_object).items():
                stayed[by_object[stored]] = _not_removed(self.where, stored.name, reason)
        except MbdError as error:
            detail = f"{self.where}: {error.problem}"
            failed = Obstacle(reason="objects could not be removed", detail=detail, hint=error.hint or "")
            stayed |= dict.fromkeys([*by_object.values(), *uploads], failed)
        return stayed

    def _objects(
        self, prefix: str, targets: Targets, known: Targets, report_obstacle: ReportObstacle
    ) -> Iterator[Copy]:
        unnamed = known.without_md5
        for stored in self.store.versions(prefix):
            # A delete marker has no content; the versions that it hides are listed as well.
            if stored.version is None or stored.tag:
                with suppress(NotThereError):  # it was removed in the meantime
                    yield from self._copies(stored, targets, known, unnamed, report_obstacle)

    def _copies(
        self, stored: StoredObject, targets: Targets, known: Targets, unnamed: Targets, report_obstacle: ReportObstacle
    ) -> Iterator[Copy]:
        name, size, version = stored.name, stored.size, stored.version
        if self.runs and name.startswith(_RUNS):
            if names_output(b"".join(self.store.pieces(stored)), targets):
                yield Copy(name=name, what="run cache entry", sha256=None, size=size, version=version)
            return
        named, target = named_by(name, targets) if self.by_name else (False, None)
        known = unnamed if named else known
        if target is None and len(known) and known.may_be(size):
            target = known.by_sha256(sha256_pieces(self.store.pieces(stored)))
        if target:
            yield copy_of(target, name, size, version=version)
        elif not self.by_name and name.endswith(ENDINGS):
            with tempfile.TemporaryFile() as content:
                content.writelines(self.store.pieces(stored))
                content.seek(0)
                stream, where = cast(BinaryIO, content), f"{self.where}/{name}"
                yield from copy_within(stream, where, targets, report_obstacle, name, size, version=version)

    def _uploads(self, prefix: str, targets: Targets) -> Iterator[Copy]:
        """Yield unfinished multipart uploads of a target: the server stores their parts."""
        if not self.by_name:
            return
        for upload in self.store.unfinished(prefix):
            _, target = named_by(upload.name, targets)
            if target:
                yield copy_of(target, upload.name, 0, upload=upload.tag)


def _unknown(where: str, digests: list[str]) -> Obstacle:
    reason = "a file could not be searched for: its MD5 or its size is unknown"
    hint = "purge where a copy, or a dvc.lock with its step.json, still exists; or search the bucket by hand"
    return Obstacle(reason=reason, detail=f"{where}: sha256 {', '.join(digests)}", hint=hint)


def _not_removed(where: str, name: str, reason: str) -> Obstacle:
    if "Object Lock" in reason:
        hint = "wait until the lock expires, or remove this version with the permission s3:BypassGovernanceRetention"
        return Obstacle(reason="an object is under Object Lock", detail=f"{where}/{name}: {reason}", hint=hint)
    hint = "get the permissions s3:DeleteObject and s3:DeleteObjectVersion on it, or ask its owner; then purge again"
    return Obstacle(reason="an object could not be removed", detail=f"{where}/{name}: {reason}", hint=hint)


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


def local_path(url: str) -> Path | None:
    """Return the folder of a path or a `file://` URL; None for other URLs."""
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
        hint = "remove the old files there by hand, all versions"
        return Unsearchable(kind, where, "only folders and stores can be searched", hint)
    try:
        return BucketPlace(kind, open_store(url, settings), by_name=by_name, runs=runs, prefixes=prefixes)
    except MbdError as error:
        return Unsearchable(kind, where, error.problem, error.hint or "correct the address")

"""The kinds of places that may hold copies of purged files. Each can be searched, and copies can be removed from it.

A place does not stop at the first failure. What cannot be searched or removed is reported as an :class:`Obstacle`, with
a hint for the operator, and the rest is processed.

Folders on this machine are searched file by file: by the digest in the name if DVC gives one, else by size and SHA-256.
A workspace file may be a copy, a reflink, a hard link or a symbolic link of a cached file. Each is found and removed on
its own. A symbolic link that leads out of all places is not followed: a link to a copy is removed, the copy itself is
reported, and so is a folder that was not searched. Hard links outside all places cannot be found, but are counted
(:attr:`mbd.formats.purge.Copy.inode`).
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

import yaml

from mbd.files import sha256_file
from mbd.formats.purge import Copy, Obstacle, Target
from mbd.purge.contents import ReportObstacle, Targets, held_in

_LARGEST_RUN_ENTRY = 1 << 20
_MD5_NAME = re.compile(r"(?:^|/)(?P<start>[0-9a-f]{2})/(?P<rest>[0-9a-f]{30})$")
# Only what holds the bytes themselves: a tombstone has the digest in its name, too.
_SHA256_NAME = re.compile(r"(?:^|/)(?:objects/sha256|batches/files)/(?P<digest>[0-9a-f]{64})$")


class Place(Protocol):
    """Storage that may hold copies."""

    @property
    def kind(self) -> str:
        """The kind of place: workspace, DVC cache and so on."""

    @property
    def where(self) -> str:
        """Its path or URL."""

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """Yield every copy; call `report_obstacle` for a part that cannot be searched. May be called repeatedly.

        An MbdError ends the search; it becomes an obstacle, too.
        """

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """Remove copies; return an obstacle for each that could not be removed. A missing copy counts as removed."""


@dataclass(frozen=True)
class Unsearchable:
    """A place that is known but cannot be searched."""

    kind: str
    where: str
    problem: str
    hint: str

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """Report that the place cannot be searched."""
        detail = f"{self.where}: {self.problem}"
        report_obstacle(Obstacle(reason="it could not be searched", detail=detail, hint=self.hint))
        yield from ()

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """Return nothing: no copy is ever found here."""
        return {}


def named_by(name: str, targets: Targets) -> tuple[bool, Target | None]:
    """Look for a digest in a name, as DVC and stores give them.

    Returns:
        Whether the name holds a digest, and the target with this digest.

    """
    if match := _MD5_NAME.search(name):
        return True, targets.by_md5(match["start"] + match["rest"])
    if match := _SHA256_NAME.search(name):
        return True, targets.by_sha256(match["digest"])
    return False, None


def copy_of(target: Target, name: str, size: int, **more: object) -> Copy:
    """Return a copy of a target."""
    return Copy(name=name, what=target.what, sha256=target.sha256, size=size, **more)


def copy_within(
    stream: BinaryIO,
    where: str,
    targets: Targets,
    report_obstacle: ReportObstacle,
    name: str,
    size: int,
    **more: object,
) -> Iterator[Copy]:
    """Yield the copy that a file, of this name and size, holds; `where`: its address, for obstacles."""
    if held := held_in(stream, where, targets, report_obstacle):
        yield copy_of(held.target, name, size, inside=held.inside, **more)


# Folders on this machine


@dataclass(frozen=True)
class _Files:
    """Files below a folder."""

    kind: str
    root: Path
    keep: str | None = field(default=None, kw_only=True)
    """hint why nothing may be removed here; None: files may be removed"""

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.Place.where`."""
        return str(self.root)

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.Place.remove`."""
        stayed = {}
        for copy in copies:
            if self.keep:
                reason = "files in a shared cache are not removed"
                stayed[copy] = Obstacle(reason=reason, detail=copy.name, hint=self.keep)
                continue
            try:
                Path(copy.name).unlink(missing_ok=True)
            except OSError as error:
                hint = "remove it as its owner, or get write permission on its folder; then purge again"
                detail = f"{copy.name}: {error.strerror}"
                stayed[copy] = Obstacle(reason="a file could not be removed", detail=detail, hint=hint)
        return stayed


@dataclass(frozen=True)
class Folder(_Files):
    """A folder with its subfolders, except those that belong to other places."""

    others: frozenset[Path] = field(default_factory=frozenset)
    """root folders of other places (real paths); they are skipped"""
    by_name: bool = False
    """whether digests in file names are trusted, as in caches and stores"""
    opened: bool = True
    """whether to look into files, as well as at their digests (:mod:`mbd.purge.contents`)"""
    expected: bool = False
    """whether it must exist: a folder that is not mounted is not an empty one"""

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.Place.find`."""
        unnamed = targets.without_md5
        if self.expected and not self.root.is_dir():
            hint = "mount it; or remove it from the configuration if it no longer exists"
            report_obstacle(Obstacle(reason="the folder does not exist", detail=str(self.root), hint=hint))
        for path in files_below(self.root, self.others, report_obstacle):
            try:
                yield from self._copies(path, targets, unnamed, report_obstacle)
            except FileNotFoundError:
                continue
            except OSError as error:
                report_obstacle(unreadable(path, error))

    def files(self) -> Iterator[Path]:
        """Yield every readable file."""
        for path in files_below(self.root, self.others, lambda _: None):
            if path.is_file():
                yield path

    def _copies(
        self, path: Path, targets: Targets, unnamed: Targets, report_obstacle: ReportObstacle
    ) -> Iterator[Copy]:
        linked = path.is_symlink()
        if linked and not path.exists():
            _, target = named_by(path.readlink().as_posix(), targets)
            if target:
                yield copy_of(target, str(path), 0)
            return
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            return
        inode = None if linked else (facts.st_dev, facts.st_ino, facts.st_nlink)
        if target := self._target(path, facts.st_size, targets, unnamed):
            yield copy_of(target, str(path), facts.st_size, inode=inode)
            if linked and _leads_out(path, self.root, self.others):
                detail, hint = (
                    f"{path} led to {path.resolve()}",
                    "remove that file, and add its folder to purge.folders",
                )
                report_obstacle(Obstacle(reason="a link led to a copy outside all places", detail=detail, hint=hint))
        elif self.opened and not linked:
            name, size = str(path), facts.st_size
            with path.open("rb") as stream:
                copies = list(copy_within(stream, name, targets, report_obstacle, name, size, inode=inode))
            yield from copies if copies and sha256_file(path) not in targets.released else ()

    def _target(self, path: Path, size: int, targets: Targets, unnamed: Targets) -> Target | None:
        if self.by_name:
            named, target = named_by(path.as_posix(), targets)
            if target:
                return target
            if named:
                targets = unnamed
        return targets.by_sha256(sha256_file(path)) if targets.may_be(size) else None


class WholeFolder(_Files):
    """A folder of which every file is removed."""

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.Place.find`."""
        for path in files_below(self.root, frozenset(), report_obstacle):
            yield Copy(name=str(path), what="features", sha256=None, size=path.lstat().st_size)


class RunCache(_Files):
    """The run cache of DVC in a folder: entries from which DVC would restore a purged output."""

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.Place.find`."""
        for path in files_below(self.root, frozenset(), report_obstacle):
            try:
                size = path.stat().st_size
                entry = path.read_bytes() if size <= _LARGEST_RUN_ENTRY else b""
            except OSError as error:
                report_obstacle(unreadable(path, error))
                continue
            if names_output(entry, targets):
                yield Copy(name=str(path), what="run cache entry", sha256=None, size=size)


def names_output(entry: bytes, targets: Targets) -> bool:
    """Return whether an entry of a run cache lists a target among its outputs."""
    try:
        outputs = yaml.safe_load(entry)["outs"]
        return any(targets.by_md5(str(output.get("md5"))) for output in outputs)
    except (yaml.YAMLError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False


def files_below(root: Path, others: frozenset[Path], report_obstacle: ReportObstacle) -> Iterator[Path]:
    """Yield the files and links below a folder, sorted.

    Symbolic links to folders are followed within the places, each folder once.
    """
    visited: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            facts = folder.stat()
            if (facts.st_dev, facts.st_ino) in visited or (folder != root and folder.resolve() in others):
                continue
            if folder != root and folder.is_symlink() and _leads_out(folder, root, others):
                detail = f"{folder} leads to {folder.resolve()}, which was not searched"
                hint = "add that folder to purge.folders, or remove the link"
                reason = "a link leads to a folder outside all places"
                report_obstacle(Obstacle(reason=reason, detail=detail, hint=hint))
                continue
            visited.add((facts.st_dev, facts.st_ino))
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            report_obstacle(unreadable(folder, error))
            continue
        waiting += [folder / entry.name for entry in reversed(listed) if entry.is_dir()]
        yield from (folder / entry.name for entry in listed if not entry.is_dir())


def _leads_out(path: Path, root: Path, others: frozenset[Path]) -> bool:
    real = path.resolve()
    return not any(real.is_relative_to(place) for place in (root.resolve(), *others))


def unreadable(path: Path, error: OSError) -> Obstacle:
    """Return the obstacle for a path that cannot be read."""
    hint = "purge with an account that may read it, or search it by hand"
    return Obstacle(reason="a part could not be read", detail=f"{path}: {error.strerror}", hint=hint)

"""A folder on this machine, searched file by file: by digests in names where DVC gives them, else by size and SHA-256.

A workspace file may be a copy, a reflink, a hard link or a symbolic link of a cached one. Copies and links are found
and removed each on their own; bytes that a symbolic link leads to outside of all places are found as well. Hard links
that lie elsewhere cannot be found, but are counted (:attr:`mbd.purge.places.place.Copy.inode`).
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from mbd.files import sha256_file
from mbd.purge.places.place import Copy, Obstacle, Tell, copy_of, named_by
from mbd.purge.targets import Target, Targets

_LARGEST_RUN_ENTRY = 1 << 20


@dataclass(frozen=True)
class Folder:
    """A folder and all below it, but what lies in other places."""

    kind: str
    root: Path
    others: frozenset[Path] = field(default_factory=frozenset)
    """roots of other places (real paths), which are left to them"""
    by_name: bool = False
    """whether names as DVC and stores give them are taken at their word"""
    keep: str | None = None
    """why nothing may be removed here; None: it may"""
    expected: bool = False
    """whether it has to be there: a folder that is not mounted is not an empty one"""

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.place.Place.where`."""
        return str(self.root)

    def find(self, targets: Targets, tell: Tell) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.place.Place.find`."""
        unnamed = targets.without_md5
        if self.expected and not self.root.is_dir():
            hint = "mount it; or, if there is none any more, take it out of the configuration"
            tell(Obstacle("it is not there", str(self.root), hint))
        for path in files_below(self.root, self.others, tell):
            try:
                yield from self._copies(path, targets, unnamed)
            except FileNotFoundError:
                continue
            except OSError as error:
                tell(unreadable(path, error))

    def files(self) -> Iterator[Path]:
        """Yield every file that can be reached."""
        for path in files_below(self.root, self.others, lambda _: None):
            if path.is_file():
                yield path

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.place.Place.remove`."""
        stayed = {}
        for copy in copies:
            if self.keep:
                stayed[copy] = Obstacle("a shared cache is not ours to remove from", copy.name, self.keep)
                continue
            try:
                Path(copy.name).unlink(missing_ok=True)
            except OSError as error:
                stayed[copy] = Obstacle(
                    "a file could not be removed",
                    f"{copy.name}: {error.strerror}",
                    "remove it as its owner, or get the right to write to its folder; then purge again",
                )
        return stayed

    def _copies(self, path: Path, targets: Targets, unnamed: Targets) -> Iterator[Copy]:
        linked = path.is_symlink()
        if linked and not path.exists():
            _, target = named_by(path.readlink().as_posix(), targets)
            if target:
                yield copy_of(target, str(path), 0)
            return
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            return
        target = self._target(path, facts.st_size, targets, unnamed)
        if target is None:
            return
        links = None if linked else (facts.st_dev, facts.st_ino, facts.st_nlink)
        yield copy_of(target, str(path), facts.st_size, inode=links)
        real = path.resolve()
        if linked and not any(real.is_relative_to(root) for root in (self.root.resolve(), *self.others)):
            yield copy_of(target, str(real), facts.st_size, inode=(facts.st_dev, facts.st_ino, facts.st_nlink))

    def _target(self, path: Path, size: int, targets: Targets, unnamed: Targets) -> Target | None:
        if self.by_name:
            named, target = named_by(path.as_posix(), targets)
            if target:
                return target
            if named:
                targets = unnamed
        return targets.by_sha256(sha256_file(path)) if targets.may_be(size) else None


@dataclass(frozen=True)
class WholeFolder:
    """A folder of which everything must go, whatever it is."""

    kind: str
    root: Path

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.place.Place.where`."""
        return str(self.root)

    def find(self, targets: Targets, tell: Tell) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.place.Place.find`."""
        for path in files_below(self.root, frozenset(), tell):
            yield Copy(str(path), "features", None, path.lstat().st_size)

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.place.Place.remove`."""
        return Folder(self.kind, self.root).remove(copies)


@dataclass(frozen=True)
class RunCache:
    """DVC's run cache in a folder: entries that would bring a purged output back by its name."""

    root: Path
    kind: str = "DVC run cache"

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.place.Place.where`."""
        return str(self.root)

    def find(self, targets: Targets, tell: Tell) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.place.Place.find`."""
        for path in files_below(self.root, frozenset(), tell):
            try:
                size = path.stat().st_size
                entry = path.read_bytes() if size <= _LARGEST_RUN_ENTRY else b""
            except OSError as error:
                tell(unreadable(path, error))
                continue
            if names_output(entry, targets):
                yield Copy(str(path), "run cache entry", None, size)

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.place.Place.remove`."""
        return Folder(self.kind, self.root).remove(copies)


def names_output(entry: bytes, targets: Targets) -> bool:
    """Whether an entry of a run cache has a target among its outputs."""
    try:
        outputs = yaml.safe_load(entry)["outs"]
        return any(targets.by_md5(str(output.get("md5"))) for output in outputs)
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, AttributeError):
        return False


def files_below(root: Path, others: frozenset[Path], tell: Tell) -> Iterator[Path]:
    """Yield files and links below a folder, in order; linked folders are followed, each folder is met once."""
    met: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            facts = folder.stat()
            if (facts.st_dev, facts.st_ino) in met or (folder != root and folder.resolve() in others):
                continue
            met.add((facts.st_dev, facts.st_ino))
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            tell(unreadable(folder, error))
            continue
        waiting += [folder / entry.name for entry in reversed(found) if entry.is_dir()]
        yield from (folder / entry.name for entry in found if not entry.is_dir())


def unreadable(path: Path, error: OSError) -> Obstacle:
    """Return the obstacle that a path cannot be read."""
    return Obstacle(
        "a part could not be read",
        f"{path}: {error.strerror}",
        "purge as somebody who may read it, or look there yourself",
    )

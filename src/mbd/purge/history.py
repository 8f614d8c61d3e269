"""The git history: files that revisions track through DVC, and files that git itself holds.

A revision tracks files through its `dvc.lock` and `.dvc` files, here called pointers. All references of git (branches,
tags, stashes, experiments of DVC) and the reflogs are read. A pointer lists files by MD5. Their SHA-256 is in the
records that steps write, which DVC tracks as well: `step.json` (all outputs), `model.json` (the weights) and
`manifest.json` (the feature files).
"""

import hashlib
import json
import posixpath
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml

from mbd.files import STEP_FILE
from mbd.formats.features import MANIFEST
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.purge import Copy, Obstacle, Target
from mbd.git import git, read_objects
from mbd.purge.contents import ReportObstacle, Targets, held_in
from mbd.purge.places import copy_of, files_below

ReadObject = Callable[[str], bytes | None]
"""returns the small object that DVC stores under an MD5, or None if no place holds it"""

_REWRITE = (
    "rewrite the history (`git filter-repo --strip-blobs-with-ids`), let every clone do the same, "
    "expire the reflogs and run `git gc --prune=now`; then purge again"
)
_TEXT = 256
"""bytes of an object that is too small to hold a model"""
_DIRECTORY = ".dir"
MALFORMED = (KeyError, TypeError, AttributeError, ValueError)
"""errors at a JSON file that is no record of a step"""
WORKSPACE = "workspace"


@dataclass(frozen=True)
class Tracked:
    """A file that a revision tracks."""

    path: str
    md5: str
    size: int | None


class GitHistory:
    """The revisions of the git repository that contains a folder."""

    def __init__(self, root: Path, read_object: ReadObject) -> None:
        self.root = root
        self._read_object = read_object
        self._objects: dict[str, Any] = {}

    @cached_property
    def in_git(self) -> bool:
        """Whether the folder is in a git repository."""
        return inside_git(self.root) and git("-C", str(self.root), "rev-parse", "--git-dir").returncode == 0

    @cached_property
    def pointers(self) -> dict[str, tuple[Tracked, ...]]:
        """What each pointer of all revisions and of the workspace tracks, by its object in git, or its path."""
        pointers = {}
        if self.in_git:
            listed = self._git("rev-list", "--objects", "--all", "--reflog")
            paths = {name: path for name, _, path in (line.partition(" ") for line in listed) if is_pointer(path)}
            for name, content in read_objects(self.root, paths):
                pointers[name] = self._tracked(paths[name], content)
        for path in self._workspace_pointers:
            with suppress(OSError):
                pointers[str(path)] = self._tracked(path.relative_to(self.root).as_posix(), path.read_bytes())
        return pointers

    @cached_property
    def tips(self) -> dict[str, frozenset[str]]:
        """The pointers in the current commit of each reference, and those in the workspace."""
        tips = {WORKSPACE: frozenset(map(str, self._workspace_pointers))}
        if self.in_git:
            for ref in self._git("for-each-ref", "--format=%(refname)"):
                listed = (line.partition("\t") for line in self._git("ls-tree", "-r", "--full-tree", ref))
                tips[ref] = frozenset(facts.split()[2] for facts, _, path in listed if is_pointer(path))
        return tips

    def refs_naming(self, targets: Targets) -> tuple[str, ...]:
        """Return the references whose current commit tracks a target. They are kept, although the file is removed."""
        naming = {name for name, files in self.pointers.items() if any(targets.by_md5(file.md5) for file in files)}
        return tuple(ref for ref, pointers in self.tips.items() if ref != WORKSPACE and naming & pointers)

    def known(self, targets: Targets) -> Iterator[Target]:
        """Yield the targets that a revision tracks, with MD5 and size."""
        for files in self.pointers.values():
            for tracked, sha256 in self._with_sha256(files):
                if target := targets.by_sha256(sha256):
                    size = tracked.size if isinstance(tracked.size, int) else None  # the pointer is any YAML
                    yield Target(sha256=sha256, what=target.what, md5=tracked.md5, size=size)

    def records(self, file: str, pointers: Iterable[str] | None = None) -> Iterator[Any]:
        """Yield the content of every JSON file of this name that these pointers (default: all) track."""
        for name in self.pointers if pointers is None else pointers:
            for tracked in self.pointers.get(name, ()):
                if posixpath.basename(tracked.path) == file and (record := self._json(tracked.md5)):
                    yield record

    def _with_sha256(self, files: tuple[Tracked, ...]) -> Iterator[tuple[Tracked, str]]:
        by_path = {tracked.path: tracked for tracked in files}
        for tracked in files:
            folder, file = posixpath.split(tracked.path)
            if file in {STEP_FILE, MODEL, MANIFEST}:
                for name, sha256 in _recorded_digests(file, self._json(tracked.md5)):
                    if recorded := by_path.get(posixpath.join(folder, name)):
                        yield recorded, sha256

    def _tracked(self, path: str, content: bytes) -> tuple[Tracked, ...]:
        folder = posixpath.dirname(path)
        return tuple(file for output in _outputs(content) for file in self._files(folder, output))

    def _files(self, folder: str, output: dict[str, Any]) -> Iterator[Tracked]:
        path, md5 = posixpath.join(folder, str(output.get("path"))), str(output.get("md5", ""))
        listed = output.get("files")
        if listed is None and md5.endswith(_DIRECTORY):
            listed = self._json(md5) or ()
        if listed is None:
            yield Tracked(path, md5, output.get("size"))
            return
        for entry in listed:
            if isinstance(entry, dict) and "relpath" in entry and "md5" in entry:
                yield Tracked(posixpath.join(path, entry["relpath"]), str(entry["md5"]), entry.get("size"))

    def _json(self, md5: str) -> Any:  # noqa: ANN401 -- any JSON
        if md5 not in self._objects:
            self._objects[md5] = None
            with suppress(ValueError):
                self._objects[md5] = json.loads(self._read_object(md5) or b"null")
        return self._objects[md5]

    def _git(self, *arguments: str) -> list[str]:
        return git("-C", str(self.root), "-c", "core.quotePath=false", *arguments).stdout.splitlines()

    @cached_property
    def _workspace_pointers(self) -> list[Path]:
        others = frozenset((self.root / name).resolve() for name in (".git", ".dvc"))
        return [path for path in files_below(self.root, others, lambda _: None) if is_pointer(path.name)]


@dataclass(frozen=True)
class GitObjects:
    """All objects of a git repository, reachable or not: files that were committed without DVC.

    Nothing is removed, because this would rewrite a history that others share. Each copy is reported as an obstacle.
    """

    root: Path
    kind: str = "git history"

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.Place.where`."""
        return str(self.root)

    def find(self, targets: Targets, report_obstacle: ReportObstacle) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.Place.find`."""
        listed = git(
            *("-C", str(self.root), "cat-file", "--batch-all-objects", "--unordered"),
            "--batch-check=%(objecttype) %(objectname) %(objectsize)",
        )
        if listed.returncode:
            hint, detail = "repair the repository (`git fsck`)", listed.stderr.strip()
            report_obstacle(Obstacle(reason="git objects could not be listed", detail=detail, hint=hint))
            return
        parts = (line.split() for line in listed.stdout.splitlines())
        blobs = (
            name for kind, name, size in parts if kind == "blob" and (targets.may_be(int(size)) or int(size) > _TEXT)
        )
        for name, content in read_objects(self.root, blobs):
            if target := targets.by_sha256(hashlib.sha256(content).hexdigest()):
                yield copy_of(target, name, len(content))
            elif held := held_in(BytesIO(content), f"object {name}", targets, report_obstacle):
                yield copy_of(held.target, name, len(content))

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.Place.remove`."""
        reason = "git itself holds a file"
        return {copy: Obstacle(reason=reason, detail=f"object {copy.name}", hint=_REWRITE) for copy in copies}


def inside_git(folder: Path) -> bool:
    """Return whether a folder seems to be in a git repository; git need not be installed for the answer no."""
    return any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents))


def is_pointer(path: str) -> bool:
    """Return whether a path is a `dvc.lock` or `.dvc` file."""
    file = posixpath.basename(path)
    return file == "dvc.lock" or (file.endswith(".dvc") and file != ".dvc")


def _outputs(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the outputs in a `dvc.lock` (of any schema) or a `.dvc` file."""
    try:
        tree = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    if not isinstance(tree, dict):
        return
    stages = tree.get("stages", tree)
    parts = [tree, *(stages.values() if isinstance(stages, dict) else ())]
    for part in parts:
        outputs = part.get("outs") if isinstance(part, dict) else None
        yield from (output for output in outputs if isinstance(output, dict)) if isinstance(outputs, list) else ()


def _recorded_digests(file: str, record: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 -- any JSON
    """Yield name and SHA-256 of the files that a record lists."""
    with suppress(*MALFORMED):
        if file == STEP_FILE:
            yield from record["outputs"]["files"].items()
        elif file == MODEL:
            yield WEIGHTS, record["sha256"]
        else:
            for split in record["splits"].values():
                yield from split["files"].items()

"""Git's own objects: files that were committed as they are, and not through DVC.

Nothing is removed here: that would rewrite a history that others share. What is found is told.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mbd.git import git, read_objects
from mbd.purge.places.place import Copy, Obstacle, Tell, copy_of
from mbd.purge.targets import Targets

_REWRITE = (
    "rewrite the history (`git filter-repo --strip-blobs-with-ids`), let every clone do the same, "
    "expire the reflogs and run `git gc --prune=now`; then purge again"
)


@dataclass(frozen=True)
class GitObjects:
    """All objects of a git repository, reachable or not."""

    root: Path
    kind: str = "git history"

    @property
    def where(self) -> str:
        """See :attr:`mbd.purge.places.place.Place.where`."""
        return str(self.root)

    def find(self, targets: Targets, tell: Tell) -> Iterator[Copy]:
        """See :meth:`mbd.purge.places.place.Place.find`."""
        listed = git(
            *("-C", str(self.root), "cat-file", "--batch-all-objects", "--unordered"),
            "--batch-check=%(objecttype) %(objectname) %(objectsize)",
        )
        if listed.returncode:
            tell(Obstacle("git could not be asked", listed.stderr.strip(), "mend the repository (`git fsck`)"))
            return
        parts = (line.split() for line in listed.stdout.splitlines())
        candidates = [name for kind, name, size in parts if kind == "blob" and targets.may_be(int(size))]
        for name, content in read_objects(self.root, candidates):
            if target := targets.by_sha256(hashlib.sha256(content).hexdigest()):
                yield copy_of(target, name, len(content))

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """See :meth:`mbd.purge.places.place.Place.remove`."""
        return {copy: Obstacle("git itself holds a file", f"object {copy.name}", _REWRITE) for copy in copies}

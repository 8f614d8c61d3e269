"""What every place has in common: it can be searched for copies, and copies can be removed from it.

A place never gives up half-way: what it cannot look into, and what it cannot remove, it tells, with what a person must
do, and goes on with the rest.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from mbd.purge.targets import Target, Targets

_MD5_NAME = re.compile(r"(?:^|/)(?P<start>[0-9a-f]{2})/(?P<rest>[0-9a-f]{30})$")
# Only what holds the bytes themselves: a tombstone has the digest in its name, too.
_SHA256_NAME = re.compile(r"(?:^|/)(?:objects/sha256|batches/files)/(?P<digest>[0-9a-f]{64})$")


@dataclass(frozen=True)
class Obstacle:
    """Something that could not be searched or removed."""

    reason: str
    """in words that name nothing: these are published"""
    detail: str
    """where, and how it failed"""
    hint: str
    """what a person must do"""


Tell = Callable[[Obstacle], None]


@dataclass(frozen=True)
class Copy:
    """A copy of a file that must go, or a version of one."""

    name: str
    """its path, or its name in the store"""
    what: str
    sha256: str | None
    """None where a place as a whole must go, and where an entry only names such a file"""
    size: int = 0
    version: str | None = None
    upload: str | None = None
    """of an upload in parts that has not come to an end: its id"""
    inode: tuple[int, int, int] | None = None
    """of a local file: device, inode, and how many links it has"""


class Place(Protocol):
    """Somewhere that copies may lie."""

    @property
    def kind(self) -> str:
        """What it is: workspace, DVC cache and so on."""

    @property
    def where(self) -> str:
        """Its path or URL."""

    def find(self, targets: Targets, tell: Tell) -> Iterator[Copy]:
        """Yield every copy; `tell` of what cannot be searched. May be asked again at any time."""

    def remove(self, copies: Iterable[Copy]) -> dict[Copy, Obstacle]:
        """Remove copies; return why those that stayed did. What is not there is gone already."""


def named_by(name: str, targets: Targets) -> tuple[bool, Target | None]:
    """Read a digest in a name: whether there is one (as DVC or a store gives it), and the target that it is of."""
    if match := _MD5_NAME.search(name):
        return True, targets.by_md5(match["start"] + match["rest"])
    if match := _SHA256_NAME.search(name):
        return True, targets.by_sha256(match["digest"])
    return False, None


def copy_of(target: Target, name: str, size: int, **more: object) -> Copy:
    """Return a copy of a target."""
    return Copy(name=name, what=target.what, sha256=target.sha256, size=size, **more)  # type: ignore[arg-type]

"""The kinds of places that may hold copies of purged files. Each can be searched, and copies can be removed from it.

A place does not stop at the first failure. What cannot be searched or removed is reported as an :class:`Obstacle`, with
a hint for the operator, and the rest is processed.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from mbd.errors import MbdError
from mbd.formats.purge import Copy, Obstacle, Target
from mbd.purge.contents import held_in
from mbd.purge.targets import ReportObstacle, Targets

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
        """Yield every copy; call `report_obstacle` for what cannot be searched. May be called repeatedly."""

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


def unsearched(where: str, error: MbdError, hint: str) -> Obstacle:
    """Return the obstacle for a place whose search failed; `hint` if the error has none."""
    reason = f"it could not be searched: {error.problem.partition(':')[0]}"
    return Obstacle(reason=reason, detail=f"{where}: {error.problem}", hint=error.hint or hint)

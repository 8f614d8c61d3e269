"""The inventory: the copies in each place, optionally removed in the same pass; and the search for resurrections.

A pass holds at most some thousand copies in memory. Copies are removed one batch behind the search, so that a paginated
listing never continues from an object that was just removed.

A clone that was offline during a purge can push old files back; a regular scan finds them.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from mbd.errors import MbdError
from mbd.formats.purge import Copy, Obstacle
from mbd.purge.contents import Targets
from mbd.purge.places import Place
from mbd.records import Record

LISTED = 1000
"""number of copies that are listed; further ones are only counted"""
_BATCH = 1000


@dataclass
class PlaceInventory:
    """The copies found in a place, and the outcome of their removal."""

    place: Place
    found: int = 0
    size: int = 0
    copies: list[Copy] = field(default_factory=list)
    """the first ones (:data:`LISTED`)"""
    stayed: int = 0
    obstacles: list[Obstacle] = field(default_factory=list)
    links: dict[tuple[int, int], tuple[int, set[str]]] = field(default_factory=dict)
    """by device and inode: the number of hard links, and the paths that were found"""

    def count(self, copy: Copy) -> None:
        """Add a copy."""
        self.found += 1
        self.size += copy.size
        if len(self.copies) < LISTED:
            self.copies.append(copy)
        if copy.inode:
            device, inode, links = copy.inode
            self.links.setdefault((device, inode), (links, set()))[1].add(copy.name)

    def report_obstacle(self, obstacle: Obstacle) -> None:
        """Add an obstacle; those beyond the first thousand are dropped."""
        if len(self.obstacles) < LISTED:
            self.obstacles.append(obstacle)


def take_inventory(places: Iterable[Place], targets: Targets) -> list[PlaceInventory]:
    """Search every place without changing anything."""
    return [_pass(place, targets, remove=False) for place in places]


def remove_all(places: Iterable[Place], targets: Targets, *, archives: bool = False) -> list[PlaceInventory]:
    """Search every place and remove what is found; what cannot be removed is reported as an obstacle.

    Files that hold other things as well are removed only with `archives`.
    """
    findings = [_pass(place, targets, remove=True, archives=archives) for place in places]
    _count_links(findings)
    return findings


def _pass(place: Place, targets: Targets, *, remove: bool, archives: bool = False) -> PlaceInventory:
    finding, waiting = PlaceInventory(place), deque[Copy]()

    def remove_some(count: int) -> None:
        for obstacle in place.remove([waiting.popleft() for _ in range(count)]).values():
            finding.stayed += 1
            finding.report_obstacle(obstacle)

    try:
        for copy in place.find(targets, finding.report_obstacle):
            finding.count(copy)
            if remove and copy.inside is not None and not archives:
                finding.stayed += 1
                finding.report_obstacle(_held(copy))
            elif remove:
                waiting.append(copy)
                if len(waiting) >= 2 * _BATCH:
                    remove_some(_BATCH)
    except MbdError as error:
        reason, detail = error.problem.partition(":")[0], f"{place.where}: {error.problem}"
        hint = error.hint or "fix this, then purge again"
        finding.report_obstacle(Obstacle(reason=f"it could not be searched: {reason}", detail=detail, hint=hint))
    while waiting:
        remove_some(min(_BATCH, len(waiting)))
    return finding


def _held(copy: Copy) -> Obstacle:
    reason, detail = "a file holds what was purged among other things", f"{copy.name}: {copy.inside}"
    hint = "take it out of that file; or remove all such files: purge.archives=true"
    return Obstacle(reason=reason, detail=detail, hint=hint)


def _count_links(findings: list[PlaceInventory]) -> None:
    """Report hard links to removed files outside all places: the content still exists there."""
    seen: dict[tuple[int, int], tuple[PlaceInventory, int, set[str]]] = {}
    for finding in findings:
        for inode, (links, paths) in finding.links.items():
            seen.setdefault(inode, (finding, links, set()))[2].update(paths)
    for (_, number), (finding, links, paths) in seen.items():
        if links > len(paths):
            reason = "hard links to a removed file exist outside all places"
            detail = f"{links - len(paths)} more links to inode {number}, which was {min(paths)}"
            hint = f"find them (`find / -inum {number}`), remove them, and add their folder to purge.folders"
            finding.report_obstacle(Obstacle(reason=reason, detail=detail, hint=hint))


_UNKNOWN = "restore the list from a backup of the private part of the store"


class Resurrection(Record):
    """A purged file that has reappeared."""

    kind: str
    """kind of the place"""
    where: str
    name: str
    version: str | None
    what: str
    sha256: str | None


class Blind(Record):
    """A place, or a part of one, that could not be searched."""

    kind: str
    where: str
    reason: str
    hint: str


class Scan(Record):
    """The result of a scan, as `mbd purge scan --json` prints it."""

    format: Literal["urn:missing-by-design:scan:v1"] = "urn:missing-by-design:scan:v1"
    tombstones: int
    places: tuple[str, ...]
    """the kind of each place that was searched"""
    resurrections: tuple[Resurrection, ...]
    blind: tuple[Blind, ...]

    @property
    def clean(self) -> bool:
        """Whether everything was searched and nothing was found."""
        return not self.resurrections and not self.blind


def scan_all(places: Iterable[Place], tombstones: Targets, unknown: Iterable[str] = ()) -> Scan:
    """Search all places for purged files; `unknown` says which lists of them could not be read."""
    places = list(places)
    resurrections = list[Resurrection]()
    blind = [Blind(kind="tombstones", where=where, reason=where, hint=_UNKNOWN) for where in unknown]
    for finding in take_inventory(places, tombstones) if len(tombstones) else ():
        place = {"kind": finding.place.kind, "where": finding.place.where}
        parts = ("name", "version", "what", "sha256")
        resurrections += (Resurrection(**place, **{p: getattr(copy, p) for p in parts}) for copy in finding.copies)
        blind += (Blind(**place, reason=o.detail, hint=o.hint) for o in finding.obstacles if o.blocking)
    return Scan(
        tombstones=len(tombstones),
        places=tuple(place.kind for place in places),
        resurrections=tuple(resurrections),
        blind=tuple(blind),
    )

"""The inventory: the copies in each place, optionally removed in the same pass.

A pass holds at most some thousand copies in memory. Copies are removed one batch behind the search, so that a paginated
listing never continues from an object that was just removed.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from mbd.formats.purge import Copy, Obstacle
from mbd.purge.places.place import Place
from mbd.purge.targets import Targets

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


def remove_all(places: Iterable[Place], targets: Targets) -> list[PlaceInventory]:
    """Search every place and remove what is found; what cannot be removed is reported as an obstacle."""
    findings = [_pass(place, targets, remove=True) for place in places]
    _count_links(findings)
    return findings


def _pass(place: Place, targets: Targets, *, remove: bool) -> PlaceInventory:
    finding, waiting = PlaceInventory(place), deque[Copy]()

    def remove_some(count: int) -> None:
        for obstacle in place.remove([waiting.popleft() for _ in range(count)]).values():
            finding.stayed += 1
            finding.report_obstacle(obstacle)

    for copy in place.find(targets, finding.report_obstacle):
        finding.count(copy)
        if remove:
            waiting.append(copy)
            if len(waiting) >= 2 * _BATCH:
                remove_some(_BATCH)
    while waiting:
        remove_some(min(_BATCH, len(waiting)))
    return finding


def _count_links(findings: list[PlaceInventory]) -> None:
    """Report hard links to removed files outside all places: the content still exists there."""
    seen: dict[tuple[int, int], tuple[PlaceInventory, int, set[str]]] = {}
    for finding in findings:
        for inode, (links, paths) in finding.links.items():
            seen.setdefault(inode, (finding, links, set()))[2].update(paths)
    for (_, number), (finding, links, paths) in seen.items():
        if links > len(paths):
            finding.report_obstacle(
                Obstacle(
                    reason="hard links to a removed file exist outside all places",
                    detail=f"{links - len(paths)} more links to inode {number}, which was {min(paths)}",
                    hint=f"find them (`find / -inum {number}`), remove them, and add their folder to purge.folders",
                )
            )

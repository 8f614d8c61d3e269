"""The inventory: place by place, what lies there; and, in the same pass, its removal.

A pass holds at most some thousand copies in memory, however many there are. Copies are removed a batch behind the
search, so that a listing in pages never goes on from an object that is gone.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from mbd.purge.places.place import Copy, Obstacle, Place
from mbd.purge.targets import Targets

LISTED = 1000
"""copies that are listed one by one; beyond, they are counted"""
_BATCH = 1000


@dataclass
class PlaceInventory:
    """What was found in a place, and what became of it."""

    place: Place
    found: int = 0
    size: int = 0
    copies: list[Copy] = field(default_factory=list)
    """the first of them"""
    stayed: int = 0
    obstacles: list[Obstacle] = field(default_factory=list)
    links: dict[tuple[int, int], tuple[int, set[str]]] = field(default_factory=dict)
    """files by device and inode: how many links they had, and which were found"""

    def count(self, copy: Copy) -> None:
        """Take a copy into account."""
        self.found += 1
        self.size += copy.size
        if len(self.copies) < LISTED:
            self.copies.append(copy)
        if copy.inode:
            device, inode, links = copy.inode
            self.links.setdefault((device, inode), (links, set()))[1].add(copy.name)

    def tell(self, obstacle: Obstacle) -> None:
        """Note an obstacle; beyond the first thousand they say nothing new."""
        if len(self.obstacles) < LISTED:
            self.obstacles.append(obstacle)


def take_inventory(places: Iterable[Place], targets: Targets) -> list[PlaceInventory]:
    """Look into every place; nothing is changed."""
    return [_pass(place, targets, remove=False) for place in places]


def remove_all(places: Iterable[Place], targets: Targets) -> list[PlaceInventory]:
    """Look into every place and remove what is found; what cannot be removed is told."""
    findings = [_pass(place, targets, remove=True) for place in places]
    _count_links(findings)
    return findings


def _pass(place: Place, targets: Targets, *, remove: bool) -> PlaceInventory:
    finding, waiting = PlaceInventory(place), deque[Copy]()

    def remove_some(count: int) -> None:
        for obstacle in place.remove([waiting.popleft() for _ in range(count)]).values():
            finding.stayed += 1
            finding.tell(obstacle)

    for copy in place.find(targets, finding.tell):
        finding.count(copy)
        if remove:
            waiting.append(copy)
            if len(waiting) >= 2 * _BATCH:
                remove_some(_BATCH)
    while waiting:
        remove_some(min(_BATCH, len(waiting)))
    return finding


def _count_links(findings: list[PlaceInventory]) -> None:
    """Tell of hard links to removed files that lie outside of all places: their bytes are still there."""
    seen: dict[tuple[int, int], tuple[PlaceInventory, int, set[str]]] = {}
    for finding in findings:
        for inode, (links, paths) in finding.links.items():
            seen.setdefault(inode, (finding, links, set()))[2].update(paths)
    for (_, number), (finding, links, paths) in seen.items():
        if links > len(paths):
            finding.tell(
                Obstacle(
                    "hard links to a removed file lie outside of all places",
                    f"{links - len(paths)} more links to inode {number}, which was {min(paths)}",
                    f"find them (`find / -inum {number}`), remove them, and add their folder to purge.folders",
                )
            )

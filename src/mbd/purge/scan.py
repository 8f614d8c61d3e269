"""Search for resurrections: purged files that have reappeared in a place.

A clone that was offline during the purge can push old files back; a regular scan finds them. What cannot be searched is
reported as well.
"""

from collections.abc import Iterable
from typing import Literal

from mbd.formats.purge import Obstacle
from mbd.purge.inventory import take_inventory
from mbd.purge.places.place import Place
from mbd.purge.targets import Targets
from mbd.records import Record

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
    findings = take_inventory(places, tombstones) if len(tombstones) else []
    return Scan(
        tombstones=len(tombstones),
        places=tuple(place.kind for place in places),
        resurrections=tuple(
            Resurrection(
                kind=finding.place.kind,
                where=finding.place.where,
                name=copy.name,
                version=copy.version,
                what=copy.what,
                sha256=copy.sha256,
            )
            for finding in findings
            for copy in finding.copies
        ),
        blind=(
            *(Blind(kind="tombstones", where=where, reason=where, hint=_UNKNOWN) for where in unknown),
            *(_blind(finding.place, obstacle) for finding in findings for obstacle in finding.obstacles),
        ),
    )


def _blind(place: Place, obstacle: Obstacle) -> Blind:
    return Blind(kind=place.kind, where=place.where, reason=obstacle.detail, hint=obstacle.hint)

"""What a search for purged files has to tell."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples


def add_purge_scan(
    samples: Samples,
    at: datetime,
    *,
    tombstones: int,
    searched: Iterable[str],
    resurrected: Iterable[str],
    blind: Iterable[str],
) -> None:
    """Add what a search found: the kinds of the places searched, and that of each find and of each obstacle."""
    found, obstacles = Counter(resurrected), Counter(blind)
    for place in {*searched, *found, *obstacles}:
        samples.set(metrics.RESURRECTED, found[place], place=place)
        samples.set(metrics.BLIND, obstacles[place], place=place)
    samples.set(metrics.TOMBSTONES, tombstones)
    samples.set(metrics.PURGE_SCAN, at.timestamp())

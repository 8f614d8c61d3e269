"""What a purge states in public: place by place, in numbers, what was found of the old weights and what is left.

It names no digest, no path and no address: those are in `purge.json`, which stays with whoever purged. The statement
binds him to that file by its SHA-256; the file holds 32 random bytes, so the digest tells nothing about the rest.
"""

from mbd.formats.predicate import Count, Erasure
from mbd.formats.shredding import ShreddingFacts
from mbd.records import Digest, Record, Time


class PlaceReport(Record):
    """A place that was searched."""

    kind: str
    """workspace, DVC cache, DVC remote, …"""
    found: Count
    """copies and versions that lay there"""
    removed: Count
    left: Count
    """copies that are still there, by a fresh listing"""
    gone: bool
    """whether a fresh listing of the whole place has shown that nothing is left"""
    reasons: tuple[str, ...]
    """why something is left or unknown, in words that name nothing"""


class PurgeReport(Record):
    """Copies of the old weights, and of what else was to go, were searched for and removed."""

    erasure: Erasure
    targets: dict[str, Count]
    """how many files were searched for, by what they are: weights, snapshot, features, export"""
    modalities: tuple[str, ...]
    """modalities whose feature files were searched for as well"""
    excepted: Count
    """files that were to go and stay, because other models need them"""
    places: tuple[PlaceReport, ...]
    shredding: ShreddingFacts | None = None
    """data keys that were destroyed, so that encrypted copies anywhere can no longer be read; null: there were none"""
    proof: Digest
    """SHA-256 of purge.json"""
    issued: Time

"""What a purge records: `purge.json`, and the list of files that must not reappear.

`purge.json` names digests, paths and addresses and stays with the operator. The published report, the predicate
:class:`mbd.formats.statement.PurgeReport`, has numbers only. It commits the operator to `purge.json` by its SHA-256;
the file holds 32 random bytes, so the digest reveals nothing else about it.
"""

from typing import Annotated, Literal

from pydantic import Field

from mbd.formats.predicate import Count, Erasure
from mbd.formats.statement import PlaceReport, ShreddingFacts
from mbd.records import Digest, Record, Time

PURGE = "purge.json"
What = Literal["weights", "snapshot", "features", "export"]
_Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class Target(Record):
    """A file to purge."""

    sha256: Digest
    what: What
    md5: _Md5 | None = None
    """null while unknown"""
    size: int | None = None
    tensors: dict[Digest, Count] = Field(default_factory=dict)
    """SHA-256 of the bytes of its tensors, as they may be saved, and how many bytes these are"""


class Needed(Record):
    """A target that stays, because another model needs it."""

    sha256: Digest
    by: str
    """SHA-256 of the weights of that model"""
    where: str
    """path, git reference or certificate of that model"""


class Copy(Record):
    """A copy of a file to purge, or one version of an object."""

    name: str
    """its path, or its object name"""
    what: str
    sha256: Digest | None
    """null where everything in a place is removed, and for entries that only refer to such a file"""
    size: int = 0
    version: str | None = None
    upload: str | None = Field(default=None, exclude=True)
    """id of an unfinished multipart upload"""
    inode: tuple[int, int, int] | None = Field(default=None, exclude=True)
    """of a local file: device, inode and number of hard links"""
    inside: str | None = None
    """where in this file it lies, among other things; null: the file is a copy as a whole"""


class Obstacle(Record):
    """Something that could not be searched or removed."""

    reason: str
    """published in the statement, so it names no file and no address"""
    detail: str
    """the file or address, and the error"""
    hint: str
    """what the operator must do"""
    blocking: bool = True
    """whether it is not known that nothing is left; false: listed only"""


class PlaceRecord(PlaceReport):
    """The same place with what stays private: its address, the copies, and what stood in the way."""

    where: str
    copies: tuple[Copy, ...]
    """the first thousand of those found"""
    obstacles: tuple[Obstacle, ...]

    @property
    def report(self) -> PlaceReport:
        """What is published about it."""
        return PlaceReport(**{name: getattr(self, name) for name in PlaceReport.model_fields})


class PurgeRecord(Record):
    """Everything `purge.json` says."""

    format: Literal["urn:missing-by-design:purge-record:v1"] = "urn:missing-by-design:purge-record:v1"
    certificate: Digest
    erasure: Erasure
    modalities: tuple[str, ...]
    """those whose feature files had to go as well"""
    targets: tuple[Target, ...]
    excepted: tuple[Needed, ...]
    places: tuple[PlaceRecord, ...]
    refs: tuple[str, ...]
    """references of git that name purged files; they stay"""
    shredding: ShreddingFacts | None = None
    """data keys that were destroyed; null: there never were any"""
    issued: Time
    salt: Digest
    """32 random bytes, so that the digest of this file reveals nothing about it"""


class TombstoneList(Record):
    """The files that a purge removes, which must not reappear: `tombstones/HEX` in the private part of the store.

    HEX is its SHA-256. The purge statement names it; a list that no statement names is not believed.
    """

    format: Literal["urn:missing-by-design:tombstones:v1"] = "urn:missing-by-design:tombstones:v1"
    certificate: Digest
    targets: tuple[Target, ...]
    salt: Digest
    """32 random bytes, so that the digest of this list reveals nothing about it"""

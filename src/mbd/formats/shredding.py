"""`shredding.json`: which data keys there were, which were destroyed, when and why; and what can be published of it.

The id of a key is a commitment to it, an HMAC-SHA256 of a fixed text with the 256-bit key: it identifies
the key and does not help to find it. So the record can be signed and published.
"""

import hashlib
import hmac
from pathlib import Path
from typing import Literal, get_args

from pydantic import AwareDatetime

from mbd.files import sha256_file
from mbd.formats.statement import DestroyedKey, KeyKind, ShreddingFacts
from mbd.records import Digest, Line, Record

RECORD = "shredding.json"
KINDS: tuple[KeyKind, ...] = get_args(KeyKind)
_COMMITTED = b"urn:missing-by-design:data-key:v1"


class KeyName(Record):
    """What a key is for: a modality's feature files, or its part in the models of a lineage."""

    lineage: str
    kind: KeyKind
    modality: str
    """`_rows` for ids, groups and labels of a FeatureSet"""

    def __str__(self) -> str:
        return f"{self.modality} ({self.kind} of {self.lineage})"


class Destruction(Record):
    """That a key is destroyed, and why."""

    reason: Line
    requested: AwareDatetime
    done: AwareDatetime | None
    """null: it has begun, and not come to its end"""


class KeyEntry(Record):
    """A data key that there is or was."""

    id: Digest
    name: KeyName
    created: AwareDatetime
    destroyed: Destruction | None = None


class ShreddingRecord(Record):
    """Everything `shredding.json` says."""

    format: Literal["urn:missing-by-design:shredding-record:v1"] = "urn:missing-by-design:shredding-record:v1"
    keys: tuple[KeyEntry, ...] = ()

    def of(self, lineage: str, modalities: tuple[str, ...], kinds: tuple[KeyKind, ...]) -> tuple[KeyEntry, ...]:
        """Return the keys of these modalities in a lineage, those destroyed too."""
        wanted = {(lineage, kind, modality) for kind in kinds for modality in modalities}
        return tuple(key for key in self.keys if (key.name.lineage, key.name.kind, key.name.modality) in wanted)

    def last(self, name: KeyName) -> KeyEntry | None:
        """Return the key of this name that was made last, if there is or was one."""
        return next((key for key in reversed(self.keys) if key.name == name), None)

    def replaced(self, entry: KeyEntry) -> "ShreddingRecord":
        """Return the record with this entry in place of the one with its id, or after all others."""
        keys = {key.id: key for key in self.keys} | {entry.id: entry}
        return self.model_copy(update={"keys": tuple(keys.values())})


def key_id(secret: bytes) -> str:
    """Return the id of a data key."""
    return hmac.new(secret, _COMMITTED, hashlib.sha256).hexdigest()


def read_shredding(folder: Path) -> ShreddingRecord:
    """Return the record in the folder of the keys; an empty one if there is none yet."""
    file = folder / RECORD
    if not file.exists():
        return ShreddingRecord()
    return ShreddingRecord.read(file, "record of data keys", "restore it: without it nothing can be decrypted")


def shredding_facts(
    folder: Path, lineage: str, modalities: tuple[str, ...], kinds: tuple[KeyKind, ...] = KINDS
) -> ShreddingFacts | None:
    """Return what can be stated of these modalities' keys in `folder`; None if there never were any."""
    return facts_of(folder, read_shredding(folder).of(lineage, modalities, kinds))


def facts_of(folder: Path, keys: tuple[KeyEntry, ...]) -> ShreddingFacts | None:
    """Return what can be stated of some of the keys in `folder`; None if there are none of them."""
    gone = [(key, key.destroyed.done) for key in keys if key.destroyed and key.destroyed.done]
    if not keys:
        return None
    return ShreddingFacts(
        destroyed=tuple(DestroyedKey(id=k.id, kind=k.name.kind, modality=k.name.modality, at=at) for k, at in gone),
        whole=len(gone) == len(keys),
        record=sha256_file(folder / RECORD),
    )

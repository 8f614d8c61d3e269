"""The receipt of a publication: every object, where the store keeps it, and under which lock.

Publishing again what is published gives the same receipt: it holds no time and no duration of its own.
"""

from datetime import datetime
from typing import Literal

from mbd.records import Digest, Record

RECEIPT = "receipt.json"


class LockRecord(Record):
    """Object Lock of an object."""

    mode: str
    until: datetime


class ObjectRecord(Record):
    """An object as the store holds it."""

    what: str
    """the file's name in the bundle"""
    name: str
    """its name in the store"""
    sha256: Digest
    size: int
    version: str | None
    """version id; null where the store keeps no versions"""
    lock: LockRecord | None


class LogRecord(Record):
    """The certificate's place in the log."""

    origin: str
    index: int
    tree_size: int
    checkpoint: str
    """the signed checkpoint that first had it"""


class Receipt(Record):
    """Everything `receipt.json` says."""

    format: Literal["urn:missing-by-design:receipt:v1"] = "urn:missing-by-design:receipt:v1"
    store: str | None
    """URL of the store, without credentials; null: a folder, whose path on the publisher's machine is not disclosed"""
    model: str
    modalities: tuple[str, ...]
    certificate: Digest
    weights: Digest
    objects: tuple[ObjectRecord, ...]
    log: LogRecord
    pointers: tuple[str, ...]
    """`latest/MODEL/MODALITY` of each modality"""
    object_lock: str
    """whether the certificate is under Object Lock, in words"""


class LatestPointer(Record):
    """What `latest/MODEL/MODALITY` holds."""

    format: Literal["urn:missing-by-design:pointer:v1"] = "urn:missing-by-design:pointer:v1"
    certificate: Digest
    index: int
    """place in the log; a pointer only moves to a later one"""

"""The layout of a store.

    objects/sha256/HEX                    files, by their digest: weights, model.json, index list, leakage, report
    log/…                                 the transparency log
    certificates/HEX/certificate.json     every envelope in the log, by the SHA-256 of its bytes
    certificates/HEX/proof.json           its inclusion in the log
    latest/MODEL/MODALITY                 a pointer to the certificate that was logged last: a hint for people

Its private part (:func:`mbd.storage.open_private`) holds what readers must not see: requests, leases, working files and
lists of purged files (:mod:`mbd.history.tombstones`).

All but pointers and the log's head are created once and never change. What is valid follows from the log alone
(:mod:`mbd.history.history`).

The receipt of a publication lists every object, where the store keeps it, and under which lock. Publishing again what
is published gives the same receipt: it holds no time and no duration of its own.
"""

from datetime import datetime
from typing import Literal
from urllib.parse import quote

from mbd.formats.files import CERTIFICATE, PROOF
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


CERTIFICATES = "certificates"
LATEST = "latest"


def object_name(sha256: str) -> str:
    """Return the name of a file."""
    return f"objects/sha256/{sha256}"


def certificate_name(digest: str) -> str:
    """Return the name of an envelope."""
    return f"{CERTIFICATES}/{digest}/{CERTIFICATE}"


def proof_name(digest: str) -> str:
    """Return the name of an envelope's proof of inclusion."""
    return f"{CERTIFICATES}/{digest}/{PROOF}"


def latest_name(model: str, modality: str) -> str:
    """Return the name of a pointer."""
    return f"{LATEST}/{quote(model, safe='')}/{quote(modality, safe='')}"


def read_pointer(data: bytes, name: str) -> LatestPointer:
    """Parse a pointer."""
    hint = "remove the object, and publish the newest certificate again"
    return LatestPointer.from_bytes(data, "pointer", file=name, hint=hint)

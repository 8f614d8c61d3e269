"""The layout of a store.

    objects/sha256/HEX                    files, by their digest: weights, model.json, index list, leakage, report
    log/…                                 the transparency log
    certificates/HEX/certificate.json     every envelope in the log, by the SHA-256 of its bytes
    certificates/HEX/proof.json           its inclusion in the log
    about/HEX/HEX2                        a marker: envelope HEX2 is a statement about certificate HEX
    latest/MODEL/MODALITY                 a pointer to the certificate that was logged last
    tombstones/sha256/HEX, …/md5/HEX      a purged file, which must not reappear (:mod:`mbd.purge.tombstone_store`)

All but pointers and the log's head are created once and never change.
"""

from typing import Literal
from urllib.parse import quote

from mbd.formats.receipt import LatestPointer
from mbd.formats.statement import CERTIFICATE, PROOF

CERTIFICATES = "certificates"
LATEST = "latest"
TOMBSTONES = "tombstones"


def object_name(sha256: str) -> str:
    """Return the name of a file."""
    return f"objects/sha256/{sha256}"


def certificate_name(digest: str) -> str:
    """Return the name of an envelope."""
    return f"{CERTIFICATES}/{digest}/{CERTIFICATE}"


def proof_name(digest: str) -> str:
    """Return the name of an envelope's proof of inclusion."""
    return f"{CERTIFICATES}/{digest}/{PROOF}"


def about_prefix(digest: str) -> str:
    """Return the prefix of the markers about a certificate."""
    return f"about/{digest}/"


def about_name(digest: str, statement: str) -> str:
    """Return the name of the marker that an envelope is a statement about a certificate."""
    return about_prefix(digest) + statement


def tombstone_name(algorithm: Literal["sha256", "md5"], digest: str) -> str:
    """Return the name of the tombstone of a file."""
    return f"{TOMBSTONES}/{algorithm}/{digest}"


def latest_name(model: str, modality: str) -> str:
    """Return the name of a pointer."""
    return f"{LATEST}/{quote(model, safe='')}/{quote(modality, safe='')}"


def read_pointer(data: bytes, name: str) -> LatestPointer:
    """Parse a pointer."""
    hint = "remove the object, and publish the newest certificate again"
    return LatestPointer.from_bytes(data, "pointer", file=name, hint=hint)

"""Where things lie in a store.

    objects/sha256/HEX                    files, by their digest: weights, model.json, index list, leakage, report
    log/…                                 the transparency log
    certificates/HEX/certificate.json     every envelope in the log, by the SHA-256 of its bytes
    certificates/HEX/proof.json           its inclusion in the log
    about/HEX/HEX2                        a sign: envelope HEX2 says something about certificate HEX
    latest/MODEL/MODALITY                 a pointer to the certificate that was logged last
    tombstones/sha256/HEX, …/md5/HEX      a purged file, which must not reappear (:mod:`mbd.purge.tombstone_store`)

All but pointers and the log's head are created once and never change.
"""

from typing import Literal
from urllib.parse import quote

from pydantic import ValidationError

from mbd.errors import DataError
from mbd.formats.statement import CERTIFICATE, PROOF
from mbd.records import Digest, Record

CERTIFICATES = "certificates"
LATEST = "latest"
TOMBSTONES = "tombstones"


class LatestPointer(Record):
    """What `latest/MODEL/MODALITY` holds."""

    format: Literal["urn:missing-by-design:pointer:v1"] = "urn:missing-by-design:pointer:v1"
    certificate: Digest
    index: int
    """place in the log; a pointer only moves to a later one"""


def object_name(sha256: str) -> str:
    """Return the place of a file."""
    return f"objects/sha256/{sha256}"


def certificate_name(digest: str) -> str:
    """Return the place of an envelope."""
    return f"{CERTIFICATES}/{digest}/{CERTIFICATE}"


def proof_name(digest: str) -> str:
    """Return the place of an envelope's proof of inclusion."""
    return f"{CERTIFICATES}/{digest}/{PROOF}"


def about_prefix(digest: str) -> str:
    """Return where signs about a certificate lie."""
    return f"about/{digest}/"


def about_name(digest: str, statement: str) -> str:
    """Return the place of the sign that an envelope says something about a certificate."""
    return about_prefix(digest) + statement


def tombstone_name(algorithm: Literal["sha256", "md5"], digest: str) -> str:
    """Return the place of the tombstone of a file."""
    return f"{TOMBSTONES}/{algorithm}/{digest}"


def latest_name(model: str, modality: str) -> str:
    """Return the place of a pointer."""
    return f"{LATEST}/{quote(model, safe='')}/{quote(modality, safe='')}"


def read_pointer(data: bytes, name: str) -> LatestPointer:
    """Return what a pointer says; DataError if it says nothing."""
    try:
        return LatestPointer.model_validate_json(data)
    except ValidationError as error:
        raise DataError(
            "a pointer in the store is damaged",
            file=name,
            hint="remove the object, and publish the newest certificate again",
        ) from error

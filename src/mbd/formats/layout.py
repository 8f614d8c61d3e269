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
"""

from urllib.parse import quote

from mbd.formats.files import CERTIFICATE, PROOF
from mbd.formats.receipt import LatestPointer

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

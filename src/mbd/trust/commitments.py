"""Salted commitments: a certificate binds its issuer to a value without disclosing it.

    commitment = SHA-256(tag ‖ salt ‖ kind ‖ 0 ‖ value)      salt: 32 random bytes, one for each commitment

Where the issuer has to recognise a value in its own certificates (which lineage, which deletion record), the salt is

    salt = HMAC-SHA-256(lineage key, tag ‖ kind ‖ 0 ‖ value)

so the commitment is the same each time, and still reveals nothing without the key (:mod:`mbd.history.lineage`).

What is hidden this way: the ids of forgotten subjects, and, where a deletion promises more than evidence, the digests
of old weights and of deleted data (a digest would let anyone confirm a guess). The issuer keeps values
and salts in a private file (:class:`PrivateRecord`); shown to an auditor, they open the commitments.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from mbd.files import write_file
from mbd.records import Digest, Record

Kind = Literal["subject", "weights", "data", "lineage", "deletion"]

SALT_BYTES = 32
_TAG = b"missing-by-design/commitment/v1\0"
_SALT_TAG = b"missing-by-design/salt/v1\0"


class Opening(Record):
    """A committed value and what opens its commitment: a secret of the issuer."""

    kind: Kind
    value: str
    salt: Digest
    """32 bytes, in hexadecimal"""

    @property
    def commitment(self) -> str:
        """What a certificate shows of the value."""
        return commit(self.kind, self.value, bytes.fromhex(self.salt))


class PrivateRecord(Record):
    """What the issuer of a certificate keeps secret, to open its commitments later."""

    format: Literal["urn:missing-by-design:private:v1"] = "urn:missing-by-design:private:v1"
    certificate: Digest
    """SHA-256 of the envelope"""
    openings: tuple[Opening, ...]


def commit(kind: Kind, value: str, salt: bytes) -> str:
    """Return the commitment to a value."""
    if len(salt) != SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes")
    return hashlib.sha256(_TAG + salt + kind.encode() + b"\0" + value.encode()).hexdigest()


def keyed(key: bytes, kind: Kind, value: str) -> Opening:
    """Return the commitment to a value that is always the same under a key: its salt follows from key and value."""
    salt = hmac.new(key, _SALT_TAG + kind.encode() + b"\0" + value.encode(), hashlib.sha256)
    return Opening(kind=kind, value=value, salt=salt.hexdigest())


class Commitments:
    """The commitments of one certificate in the making: the same value has one commitment in all of it."""

    def __init__(self) -> None:
        self._openings: dict[tuple[Kind, str], Opening] = {}

    def to(self, kind: Kind, value: str) -> str:
        """Return the commitment to a value."""
        place = (kind, value)
        if place not in self._openings:
            self._openings[place] = Opening(kind=kind, value=value, salt=secrets.token_hex(SALT_BYTES))
        return self._openings[place].commitment

    def to_all(self, kind: Kind, values: Iterable[str]) -> tuple[str, ...]:
        """Return the commitments to values, in an order that reveals nothing about theirs."""
        return tuple(sorted(self.to(kind, value) for value in values))

    @property
    def openings(self) -> tuple[Opening, ...]:
        """What opens them."""
        return tuple(self._openings.values())


def keep_private(folder: Path, certificate: str, openings: tuple[Opening, ...]) -> Path:
    """Write what opens the commitments of a certificate to a file that only its owner can read; return the file."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / f"{certificate}.json"
    record = PrivateRecord(certificate=certificate, openings=openings)
    write_file(file, record.to_json(), mode=0o600)
    return file


def read_private(file: Path) -> PrivateRecord:
    """Read the private file of a certificate."""
    return PrivateRecord.read(file, "private file of a certificate", "`mbd certify` writes it")

"""Salted commitments, by which a certificate binds its issuer to a value without disclosing it, and the lineage key.

    commitment = SHA-256(tag ‖ salt ‖ kind ‖ 0 ‖ value)      salt: 32 random bytes, one for each commitment

Where the issuer has to recognise a value in its own certificates (which lineage, which deletion record), the salt is

    salt = HMAC-SHA-256(lineage key, tag ‖ kind ‖ 0 ‖ value)

so the commitment is the same each time, and still reveals nothing without the key (:mod:`mbd.history.lineage`). It
protects persons, deletion records and requests, too.

What is hidden this way: the ids of forgotten subjects, and, where a deletion promises more than evidence, the digests
of old weights and of deleted data (a digest would let anyone confirm a guess). The issuer keeps values
and salts in a private file (:class:`PrivateRecord`); shown to an auditor, they open the commitments.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mbd.errors import MbdError, UsageError
from mbd.files import read_key, write_file
from mbd.params.operations import CertificateSettings
from mbd.records import Digest, Record

Kind = Literal["subject", "weights", "data", "lineage", "deletion"]

SALT_BYTES = 32
_TAG = b"missing-by-design/commitment/v1\0"
_SALT_TAG = b"missing-by-design/salt/v1\0"
LINEAGE_KEY, REQUEST_KEY = "lineage.key", "request.key"
_KEY_TAG = b"missing-by-design/lineage-key/v1\0"
_SEALING_TAG = b"missing-by-design/sealed-record/v1"
_REQUEST_TAG = b"missing-by-design/request/v1\0"
_NONCE = 12
_LINEAGE = "lineage key", "restore it from its backup; `mbd keys new --if-none` makes one where none ever was"


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


def read_values(folder: Path, certificate: str) -> dict[str, str]:
    """Return what the commitments of a certificate stand for, by its private file; nothing if that is not readable."""
    try:
        openings = read_private(folder / f"{certificate}.json").openings
    except MbdError:
        return {}
    return {opening.commitment: opening.value for opening in openings}


# The key of an issuer's lineages


@dataclass(frozen=True)
class LineageKey:
    """The secret under which certificates name their lineage."""

    secret: bytes

    @property
    def id(self) -> str:
        """A name of the key that reveals nothing about it."""
        return hashlib.sha256(_KEY_TAG + self.secret).hexdigest()[:16]

    def lineage(self, first: str) -> str:
        """Return the id of a lineage; `first`: SHA-256 of the weights of its first model."""
        return keyed(self.secret, "lineage", first).commitment

    def seal(self, certificate: str, content: bytes) -> bytes:
        """Encrypt the `deletion.json` of a certificate; the same content gives the same bytes."""
        nonce = hmac.digest(self._sealing, certificate.encode() + content, "sha256")[:_NONCE]
        return nonce + AESGCM(self._sealing).encrypt(nonce, content, certificate.encode())

    def unseal(self, certificate: str, sealed: bytes) -> bytes:
        """Decrypt what :meth:`seal` made; InvalidTag if it did not."""
        return AESGCM(self._sealing).decrypt(sealed[:_NONCE], sealed[_NONCE:], certificate.encode())

    @property
    def _sealing(self) -> bytes:
        return hmac.digest(self.secret, _SEALING_TAG, "sha256")

    def record(self, sha256: str) -> str:
        """Return the commitment to a `deletion.json` of this SHA-256."""
        return keyed(self.secret, "deletion", sha256).commitment

    def subject(self, value: str) -> str:
        """Return the pseudonym of a person: the same for the same person, and nothing without the key."""
        return keyed(self.secret, "subject", value).commitment

    @property
    def requests(self) -> "RequestKey":
        """The key of requests: it opens nothing that the lineage key protects."""
        return RequestKey(hmac.digest(self.secret, _REQUEST_TAG, "sha256"))

    def data(self, sha256: str) -> str:
        """Return the commitment to the digest of a model's data."""
        return keyed(self.secret, "data", sha256).commitment


@dataclass(frozen=True)
class RequestKey:
    """The secret under which requests are entered and changed: it follows from the lineage key, and not the reverse."""

    secret: bytes

    def mac(self, request: bytes) -> str:
        """Return the MAC of a request."""
        return hmac.digest(self.secret, request, "sha256").hex()

    def is_mac(self, mac: str | None, request: bytes) -> bool:
        """Return whether this is the MAC of a request."""
        return hmac.compare_digest(self.mac(request), mac or "")


def new_lineage_key(folder: Path) -> None:
    """Make the lineage key and the key of requests in a folder of keys, unless they are there."""
    file = folder / LINEAGE_KEY
    if not file.exists():
        write_file(file, f"{secrets.token_hex(SALT_BYTES)}\n", mode=0o600)
    if not (folder / REQUEST_KEY).exists():
        write_file(folder / REQUEST_KEY, f"{LineageKey(read_key(file, *_LINEAGE)).requests.secret.hex()}\n", mode=0o600)


def read_lineage_key(settings: CertificateSettings) -> LineageKey:
    """Return the key in `certificate.lineage_key`; by default, `lineage.key` beside the first signing key in a file."""
    return LineageKey(read_key(_file(settings), *_LINEAGE))


def find_request_key(settings: CertificateSettings) -> RequestKey | None:
    """Return the key of requests: from the lineage key, or else `request.key` in its place; None: neither is there."""
    with suppress(UsageError):
        return read_lineage_key(settings).requests
    with suppress(UsageError):
        return RequestKey(read_key(_file(settings).with_name(REQUEST_KEY), *_LINEAGE))
    return None


def _file(settings: CertificateSettings) -> Path:
    if settings.lineage_key is not None:
        return Path(settings.lineage_key)
    for uri in (*settings.signers, settings.log_signer):
        scheme, _, path = uri.partition(":")
        if scheme == "file":
            return Path(path.removeprefix("//")).parent / LINEAGE_KEY
    raise UsageError("there is no lineage key", key="certificate.lineage_key", hint="say in which file it is")

"""The lineage key: certificates name their lineage under it, and persons, records and requests are protected by it."""

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mbd.errors import UsageError
from mbd.files import write_file
from mbd.params.operations import CertificateSettings
from mbd.trust.commitments import SALT_BYTES, keyed

LINEAGE_KEY, REQUEST_KEY = "lineage.key", "request.key"
_TAG = b"missing-by-design/lineage-key/v1\0"
_SEALING_TAG = b"missing-by-design/sealed-record/v1"
_REQUEST_TAG = b"missing-by-design/request/v1\0"
_NONCE = 12


@dataclass(frozen=True)
class LineageKey:
    """The secret under which certificates name their lineage."""

    secret: bytes

    @property
    def id(self) -> str:
        """A name of the key that reveals nothing about it."""
        return hashlib.sha256(_TAG + self.secret).hexdigest()[:16]

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
        write_file(folder / REQUEST_KEY, f"{LineageKey(_read(file)).requests.secret.hex()}\n", mode=0o600)


def read_lineage_key(settings: CertificateSettings) -> LineageKey:
    """Return the key in `certificate.lineage_key`; by default, `lineage.key` beside the first signing key in a file."""
    return LineageKey(_read(_file(settings)))


def find_request_key(settings: CertificateSettings) -> RequestKey | None:
    """Return the key of requests: from the lineage key, or else `request.key` in its place; None: neither is there."""
    with suppress(UsageError):
        return read_lineage_key(settings).requests
    with suppress(UsageError):
        return RequestKey(_read(_file(settings).with_name(REQUEST_KEY)))
    return None


def _read(file: Path) -> bytes:
    hint = "restore it from its backup; `mbd keys new --if-none` makes one where none ever was"
    try:
        with file.open("rb") as stream:
            mode, mounted = os.fstat(stream.fileno()).st_mode, os.fstatvfs(stream.fileno()).f_flag & os.ST_RDONLY
            secret = bytes.fromhex(stream.read().decode())
    except OSError as error:
        raise UsageError(f"the lineage key cannot be read: {error.strerror}", file=file, hint=hint) from error
    except ValueError as error:
        raise UsageError("this is not a lineage key", file=file, hint=hint) from error
    if len(secret) != SALT_BYTES:
        raise UsageError("this is not a lineage key", file=file, hint=hint)
    if mode & 0o077 and not mounted:
        raise UsageError("other users can read the lineage key", file=file, hint=f"chmod 600 {file}")
    return secret


def _file(settings: CertificateSettings) -> Path:
    if settings.lineage_key is not None:
        return Path(settings.lineage_key)
    for uri in (*settings.signers, settings.log_signer):
        scheme, _, path = uri.partition(":")
        if scheme == "file":
            return Path(path.removeprefix("//")).parent / LINEAGE_KEY
    raise UsageError("there is no lineage key", key="certificate.lineage_key", hint="say in which file it is")

"""The lineage key: the secret under which certificates name their lineage, and persons and records are encrypted."""

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mbd.errors import UsageError
from mbd.files import write_file
from mbd.params.certificate import CertificateSettings
from mbd.trust.commitments import SALT_BYTES, keyed

LINEAGE_KEY = "lineage.key"
_TAG = b"missing-by-design/lineage-key/v1\0"
_SEALING_TAG = b"missing-by-design/sealed-record/v1"
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

    def data(self, sha256: str) -> str:
        """Return the commitment to the digest of a model's data."""
        return keyed(self.secret, "data", sha256).commitment


def new_lineage_key(folder: Path) -> None:
    """Make the lineage key in a folder of keys, unless there is one."""
    if not (folder / LINEAGE_KEY).exists():
        write_file(folder / LINEAGE_KEY, f"{secrets.token_hex(SALT_BYTES)}\n", mode=0o600)


def read_lineage_key(settings: CertificateSettings) -> LineageKey:
    """Return the key in `certificate.lineage_key`; by default, `lineage.key` beside the first signing key in a file."""
    file = _file(settings)
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
    return LineageKey(secret)


def _file(settings: CertificateSettings) -> Path:
    if settings.lineage_key is not None:
        return Path(settings.lineage_key)
    for uri in (*settings.signers, settings.log_signer):
        scheme, _, path = uri.partition(":")
        if scheme == "file":
            return Path(path.removeprefix("//")).parent / LINEAGE_KEY
    raise UsageError("there is no lineage key", key="certificate.lineage_key", hint="say in which file it is")

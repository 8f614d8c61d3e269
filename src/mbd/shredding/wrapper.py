"""Wrapping of data keys, so that a stolen folder of keys is useless: by a key in a file, or by a KMS.

    file:PATH     32 random bytes in hexadecimal, mode 0600; AES-256-GCM with a random nonce
    awskms:KEY    AWS KMS or a compatible service (id, ARN or alias/NAME of the key)

The context (id and name of the data key) is authenticated, so that a wrapped key cannot be used in place of another.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mbd.errors import DataError, MbdError, UsageError, extras_named
from mbd.files import read_key, write_file

KEY_BYTES = 32
_NONCE_BYTES = 12
Context = Mapping[str, str]


class UnwrapError(DataError):
    """A data key was wrapped by another key, or is damaged."""

    def __init__(self, uri: str) -> None:
        super().__init__(
            "the data key was wrapped by another key, or is damaged",
            key="shredding.wrapper",
            value=uri,
            hint="name the key that wrapped it; after an interrupted `mbd shred keys --rewrap URI`, run that again",
        )


class Wrapper(Protocol):
    """Wraps data keys."""

    def wrap(self, secret: bytes, context: Context) -> bytes:
        """Return a data key, encrypted for :meth:`unwrap`."""

    def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        """Return a data key, or raise an :class:`UnwrapError`."""


def open_wrapper(uri: str) -> Wrapper:
    """Return the wrapper for a URI. Nothing is read or requested yet."""
    scheme, _, rest = uri.partition(":")
    if scheme == "file" and rest:
        return FileWrapper(file_of(uri))
    if scheme == "awskms" and rest:
        return KmsWrapper(rest)
    raise UsageError("keys are wrapped by file:PATH or awskms:KEY", key="shredding.wrapper", value=uri)


def file_of(uri: str) -> Path:
    """Return the path in a `file:` URI."""
    return Path(uri.removeprefix("file:").removeprefix("//"))


class FileWrapper:
    """Wraps data keys with the key in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def make(self) -> bool:
        """Create the key if the file does not exist; return whether it was created."""
        try:
            write_file(self.file, f"{secrets.token_hex(KEY_BYTES)}\n", mode=0o600, new=True)
        except FileExistsError:
            return False
        return True

    def wrap(self, secret: bytes, context: Context) -> bytes:
        """Return nonce and ciphertext."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher().encrypt(nonce, secret, rfc8785.dumps(dict(context)))

    def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        """Return the data key."""
        nonce, sealed = wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:]
        try:
            return self._cipher().decrypt(nonce, sealed, rfc8785.dumps(dict(context)))
        except (InvalidTag, ValueError) as error:
            raise UnwrapError(f"file:{self.file}") from error

    def _cipher(self) -> AESGCM:
        hint = f"`mbd shred keys` writes {KEY_BYTES} bytes in hexadecimal; shredding.wrapper is where they are"
        return AESGCM(read_key(self.file, "wrapping key", hint))


class KmsWrapper:
    """Wraps data keys with a key that never leaves the KMS; kms:Encrypt and kms:Decrypt on it are needed.

    Credentials, region and endpoint come only from the standard AWS chain (environment, profile, role;
    AWS_ENDPOINT_URL_KMS).
    """

    def __init__(self, key: str) -> None:
        self.key = key

    def wrap(self, secret: bytes, context: Context) -> bytes:
        """Return the data key, encrypted by the KMS."""
        answer = self._call("encrypt", context, Plaintext=secret)
        return bytes(answer["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, context: Context) -> bytes:
        """Return the data key, decrypted by the KMS."""
        return bytes(self._call("decrypt", context, CiphertextBlob=wrapped)["Plaintext"])

    def _call(self, operation: str, context: Context, **content: bytes) -> Any:  # noqa: ANN401 -- boto3 has no types
        with extras_named():
            import boto3  # noqa: PLC0415 -- slow to load
            from botocore.config import Config  # noqa: PLC0415
            from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
        retries = {"mode": "standard", "total_max_attempts": 4}
        try:
            client = boto3.Session().client("kms", config=Config(connect_timeout=10, read_timeout=10, retries=retries))
            return getattr(client, operation)(KeyId=self.key, EncryptionContext=dict(context), **content)
        except (ClientError, BotoCoreError) as error:
            uri = f"awskms:{self.key}"
            code = getattr(error, "response", {}).get("Error", {}).get("Code")
            if code in {"InvalidCiphertextException", "IncorrectKeyException"}:
                raise UnwrapError(uri) from error
            raise MbdError(
                f"the KMS failed to wrap or unwrap a data key: {error}",
                key="shredding.wrapper",
                value=uri,
                hint="check credentials, AWS_DEFAULT_REGION, the state of the key, and kms:Encrypt, kms:Decrypt",
            ) from error

"""Wrapping of data keys, so that a stolen folder of keys is useless: by a key in a file, or by a KMS.

    file:PATH     32 random bytes in hexadecimal, mode 0600; AES-256-GCM with a random nonce
    awskms:KEY    AWS KMS or a compatible service (id, ARN or alias/NAME of the key)

The context (id and name of the data key) is authenticated, so that a wrapped key cannot be used in place of another.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mbd.errors import DataError, UsageError, extras_named
from mbd.files import read_secret, write_file

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
        with extras_named():
            from mbd.shredding.kms import KmsWrapper  # noqa: PLC0415 -- boto3 is slow to load
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
        hint = "`mbd shred keys` creates one; shredding.wrapper is its location"
        try:
            key = bytes.fromhex(read_secret(self.file, "wrapping key", hint).decode())
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise UsageError(
                "the file is not a wrapping key",
                file=self.file,
                hint=f"it must hold {KEY_BYTES} bytes in hexadecimal, as `mbd shred keys` writes them",
            )
        return AESGCM(key)

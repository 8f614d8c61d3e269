"""Gaussian noise from a secret key that is destroyed after use.

    key_name = SHA-256(tag ‖ key ‖ name)      one stream for each tensor
    u        = ChaCha20(key_name), 53 bits each, in (0, 1]
    z        = √(−2 ln u₁) · (cos 2πu₂, sin 2πu₂)

The key allows subtracting the noise, so it is fresh for each deletion, never in any output, and overwritten after use.
A commitment, SHA-256(tag ‖ salt ‖ key), is published: if the key is in escrow, it can be shown later that this key was
used; without the key the commitment reveals nothing.

Noise hides a distance Δ: two vectors that were clipped to a ball of radius C are at most 2C apart, whatever they were.
"""

import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.errors import UsageError
from mbd.randomness import stream_seed
from mbd.tensors import Array

KEY_BYTES = 32
_COMMITMENT = b"missing-by-design/noise-key/v1\0"
_STREAM = b"missing-by-design/noise-stream/v1\0"
_CHUNK = 1 << 18  # numbers drawn at a time; even, so that no pair is torn apart


@dataclass(frozen=True)
class Sensitivity:
    """A bound on the L2 distance between two vectors that noise must make indistinguishable, and why it holds."""

    value: float
    reason: str


def of_ball(radius: float) -> Sensitivity:
    """Return the sensitivity of a vector that was clipped to norm `radius`."""
    return Sensitivity(
        2 * radius,
        f"The vector is scaled down to an L2 norm of at most C = {radius:g} before noise is added. Any two vectors in "
        f"that ball are at most 2C = {2 * radius:g} apart, however they were trained: nothing is assumed about the "
        "loss, the data or the training.",
    )


def clip(vector: Mapping[str, Array], radius: float) -> dict[str, Array]:
    """Scale tensors, taken together as one vector, down to norm `radius` (float64)."""
    norm = math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in vector.values()))
    factor = min(1.0, radius / norm) if norm else 1.0
    return {name: array.astype(np.float64) * factor for name, array in vector.items()}


class NoiseKey:
    """A 256-bit key, the salt of its commitment, and the noise that comes from it, until it is destroyed."""

    def __init__(self, key: bytes, salt: bytes) -> None:
        if len(key) != KEY_BYTES or len(salt) != KEY_BYTES:
            raise ValueError(f"key and salt have {KEY_BYTES} bytes each")
        self._key, self._salt = bytearray(key), bytearray(salt)
        self.commitment = commit(key, salt)

    @classmethod
    def fresh(cls) -> "NoiseKey":
        """Draw a key and a salt from the operating system."""
        return cls(secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES))

    @classmethod
    def public(cls, seed: int) -> "NoiseKey":
        """Return the key that belongs to a seed which anyone may know: its noise hides nothing."""
        key, salt = (stream_seed(seed, "public noise", part).to_bytes(KEY_BYTES, "big") for part in ("key", "salt"))
        return cls(key, salt)

    def gaussian(self, name: str, shape: tuple[int, ...]) -> Array:
        """Return standard normal numbers (float64) that belong to this key and `name`."""
        if self.destroyed:
            raise ValueError("the key has been destroyed")
        count = math.prod(shape)
        out = np.empty(count + count % 2)
        stream = _Stream(_digest(_STREAM, self._key, name.encode()).digest())
        for start in range(0, len(out), _CHUNK):
            part = out[start : start + _CHUNK]
            part[:] = _box_muller(stream.uniforms(len(part)))
        return out[:count].reshape(shape)

    def put_in_escrow(self, file: Path) -> None:
        """Append key and salt to a file that only its owner can read."""
        entry = {"commitment": self.commitment, "key": self._key.hex(), "salt": self._salt.hex()}
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "a", encoding="ascii") as stream:
            if os.fstat(handle).st_mode & 0o077:
                raise UsageError(
                    "other users can access the escrow file",
                    file=file,
                    key="deletion.certified.escrow",
                    hint=f"chmod 600 {file}",
                )
            stream.write(json.dumps(entry) + "\n")
            stream.flush()
            os.fsync(handle)

    def destroy(self) -> None:
        """Overwrite key and salt in memory (as far as Python can: copies the runtime has made are not reached)."""
        for secret in (self._key, self._salt):
            secret[:] = bytes(len(secret))
            secret.clear()

    @property
    def destroyed(self) -> bool:
        """Whether the key is gone."""
        return not self._key


def commit(key: bytes, salt: bytes) -> str:
    """Return the commitment to a key."""
    return _digest(_COMMITMENT, salt, key).hexdigest()


@contextmanager
def one_time_key(
    escrow: Path | None = None, key: NoiseKey | None = None, public_seed: int | None = None
) -> Iterator[NoiseKey]:
    """Yield a fresh key (or `key`, or that of a public seed), after putting it in escrow if requested.

    It is destroyed afterwards in every case.
    """
    key = key or (NoiseKey.fresh() if public_seed is None else NoiseKey.public(public_seed))
    try:
        if escrow is not None:
            key.put_in_escrow(escrow)
        yield key
    finally:
        key.destroy()


def _digest(*parts: bytes | bytearray) -> "hashlib._Hash":
    """Hash the parts one by one: joining them would leave a copy of the key."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest


class _Stream:
    """The key stream of ChaCha20 as numbers."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms  # noqa: PLC0415

        # The nonce may be constant because each key has one stream only.
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def uniforms(self, count: int) -> Array:
        """Return the next `count` numbers, evenly spread over (0, 1]: never 0, so that their logarithm is finite."""
        words = np.frombuffer(self._cipher.update(bytes(8 * count)), "<u8")
        return ((words >> np.uint64(11)) + np.uint64(1)) * 2.0**-53


def _box_muller(uniforms: Array) -> Array:
    """Turn pairs of uniform numbers into as many normal ones."""
    radius = np.sqrt(-2.0 * np.log(uniforms[0::2]))
    angle = 2.0 * math.pi * uniforms[1::2]
    out = np.empty_like(uniforms)
    out[0::2], out[1::2] = radius * np.cos(angle), radius * np.sin(angle)
    return out

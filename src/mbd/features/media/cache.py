"""Vectors that were computed once, kept by what they were computed from.

An entry's key is the digest of the encoder (weights, configuration, sampling, versions, damage) and of the content
(a file's bytes, or a text). Its file holds SHA-256(key ‖ vector) ‖ vector, float32 in little-endian order; a vector
of length 0 says that the content has nothing of the modality (a video without sound). An entry that is cut off,
altered or under a wrong name does not match its digest and is computed again. Each entry is written whole or not
at all, so a killed run goes on where it was, and several runs may share a cache.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.files import write_file
from mbd.tensors import Array

_DIGEST_BYTES = 32


@dataclass(frozen=True)
class VectorCache:
    """The vectors of one modality and one encoder, in a folder of the modality's own."""

    folder: Path
    encoder_digest: str

    def get(self, content_digest: str) -> Array | None:
        """Return the vector of a content, or None if there is none that can be trusted."""
        key = self._key(content_digest)
        try:
            entry = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        digest, vector = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
        if digest != _seal(key, vector):
            return None
        return np.frombuffer(vector, dtype="<f4").astype(np.float32)

    def put(self, content_digest: str, vector: Array) -> None:
        """Keep the vector of a content."""
        key = self._key(content_digest)
        data = vector.astype("<f4").tobytes()
        write_file(self._path(key), _seal(key, data) + data)

    def _key(self, content_digest: str) -> str:
        return hashlib.sha256(f"{self.encoder_digest}:{content_digest}".encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.vector"


def _seal(key: str, vector: bytes) -> bytes:
    return hashlib.sha256(key.encode() + vector).digest()

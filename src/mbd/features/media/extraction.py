"""Vectors for contents: from the cache where they are in it, else decoded and encoded, several rows side by side.

A thread takes a row through decode → (damage) → encode → cache, so while one row is decoded another one is encoded,
and no more raw content is in memory than there are threads. Rows with the same content share one vector.

The cache keeps a vector by what it was computed from: the key is the digest of the encoder (weights, configuration,
sampling, versions, damage) and of the content (a file's bytes, or a text). The file of an entry holds
SHA-256(key ‖ vector) ‖ vector, float32 in little-endian order; a vector of length 0 means that the content has nothing
of the modality (a video without sound). An entry that is cut off, altered or under a wrong name does not match its
digest and is computed again. Each entry is written whole or not at all: a killed run continues where it was, and
several runs may share a cache.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.errors import DataError
from mbd.features.media.encoders import Encoder, Loaded
from mbd.files import sha256_file, write_file
from mbd.logs import progress_bar
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


_NOTHING = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Content:
    """A text or a file to be encoded, and the cell of the table that names it."""

    value: str | Path
    digest: str
    table: Path
    place: str
    needed: bool = True
    """whether it is an error if the file has none of the modality"""

    def error(self, problem: str, hint: str | None) -> DataError:
        """Return an error that says which cell of which table names this content."""
        return DataError(problem, file=self.table, key=self.place, value=self.value, hint=hint)


def extract(
    encoder: Encoder, contents: Sequence[Content | None], cache: Path, workers: int | None = None
) -> list[Array]:
    """Return the vector of each of `contents`: empty where there is no content or none of this modality in it."""
    kept = VectorCache(cache / encoder.modality, encoder.digest)
    unique: dict[str, Content] = {}
    for content in filter(None, contents):
        unique.setdefault(content.digest, content)  # errors name the first cell that has this content
    title = f"{encoder.modality}, damaged" if encoder.damage else encoder.modality
    with progress_bar(total=len(unique), desc=title, unit="row") as bar:
        vectors = {digest: vector for digest in unique if (vector := kept.get(digest)) is not None}
        bar.update(len(vectors))
        missing = [content for digest, content in unique.items() if digest not in vectors]
        for content, vector in _encoded(encoder, missing, kept, workers):
            vectors[content.digest] = vector
            bar.update()
    for digest, content in unique.items():
        if content.needed and not vectors[digest].size:
            raise content.error(
                f"the file has no {encoder.modality}", "empty the cell: then the row goes without this modality"
            )
    return [_NOTHING if content is None else vectors[content.digest] for content in contents]


def digests_of_files(paths: Iterable[Path], workers: int | None = None) -> dict[Path, str]:
    """Return the SHA-256 of each file's bytes."""

    def digest(path: Path) -> str:
        try:
            return sha256_file(path)
        except OSError as error:
            raise DataError(f"the file cannot be read: {error.strerror}", file=path) from error

    unique = list(dict.fromkeys(paths))
    with ThreadPoolExecutor(workers or _cores()) as pool:
        digests = progress_bar(iterable=pool.map(digest, unique), total=len(unique), desc="digests", unit="file")
        return dict(zip(unique, digests, strict=True))


def digest_of_text(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(
    encoder: Encoder, contents: list[Content], kept: VectorCache, workers: int | None
) -> Iterable[tuple[Content, Array]]:
    """Encode and keep `contents`, in order; the encoder is loaded only if there are any."""
    if not contents:
        return
    with encoder.loaded() as loaded, ThreadPoolExecutor(workers or _cores()) as pool:

        def encode(content: Content) -> Array:
            vector = _encode(encoder, loaded, content)
            kept.put(content.digest, vector)
            return vector

        yield from zip(contents, pool.map(encode, contents), strict=True)


def _encode(encoder: Encoder, loaded: Loaded, content: Content) -> Array:
    try:
        raw = loaded.decode(content.value)
        if raw is None:
            return _NOTHING
        if encoder.damage is not None:
            raw = encoder.damage.apply(raw, content.digest)
        return loaded.encode(raw)
    except DataError as error:
        raise content.error(error.problem, error.hint) from error


def _cores() -> int:
    return len(os.sched_getaffinity(0))

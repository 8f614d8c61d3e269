"""The three encoders: what determines their vectors, and how they are loaded when a vector is missing.

A vector is the outcome of decode → (damage) → encode. The digest of an encoder covers all that determines it but the
content: weights, configuration, sampling, the versions of what decodes and computes, and the damage, if any.

A frozen encoder is a local folder as `save_pretrained` writes it, or a hub id at a full commit: a branch or tag can be
moved, and with it every vector. Only configuration, vocabulary and safetensors are fetched and read, never code or
pickles.

Vectors come from the cache where they are in it; others are decoded and encoded, several rows side by side. A thread
takes a row through decode → (damage) → encode → cache, so while one row is decoded another one is encoded, and no more
raw content is in memory than there are threads. Rows with the same content share one vector.

The cache keeps a vector by what it was computed from: the key is the digest of the encoder (weights, configuration,
sampling, versions, damage) and of the content (a file's bytes, or a text). The file of an entry holds
SHA-256(key ‖ vector) ‖ vector, float32 in little-endian order; a vector of length 0 means that the content has nothing
of the modality (a video without sound). An entry that is cut off, altered or under a wrong name does not match its
digest and is computed again. Each entry is written whole or not at all: a killed run continues where it was, and
several runs may share a cache.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.files import canonical_digest, read_json, sha256_file, write_file
from mbd.logs import progress_bar
from mbd.params.features import MediaSettings
from mbd.registry import lazy
from mbd.tensors import Array

_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_HUB_ID = re.compile(r"^\w[\w.-]*(/\w[\w.-]*)?$")


def encoder_folder(name: str, revision: str | None, key: str) -> Path:
    """Return the folder of the encoder that the parameter `key` names, fetched from the hub if need be."""
    folder, revision_key = Path(name), f"{key.removesuffix('_encoder')}_revision"
    if folder.is_dir():
        if revision is not None:
            raise UsageError(
                "a revision belongs to a hub id, and this is a local folder",
                key=revision_key,
                value=revision,
                hint="set it to null, or give the folder another name than the hub id",
            )
    elif not _HUB_ID.match(name):
        raise UsageError("there is no such encoder folder", key=key, value=name)
    elif revision is None or not _COMMIT.match(revision):
        raise UsageError(
            "there is no such encoder folder, and an encoder from the hub needs the full commit it is pinned to",
            key=revision_key,
            value=revision,
            hint=f"give the 40 hexadecimal digits that the hub shows in the history of {name}, or a local folder",
        )
    else:
        folder = _fetch(name, revision, key)
    _check_files(folder, key)
    return folder


def encoder_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of an encoder that may be read, by name."""
    files = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return {file.name: sha256_file(file) for file in files}


def _fetch(name: str, revision: str, key: str) -> Path:
    from huggingface_hub import snapshot_download  # noqa: PLC0415 -- only a hub id needs it

    try:
        wanted = [f"*{suffix}" for suffix in _SUFFIXES]
        return Path(snapshot_download(name, revision=revision, allow_patterns=wanted, ignore_patterns=["*/*"]))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the encoder cannot be fetched from the hub: {error}",
            key=key,
            value=f"{name} at {revision}",
            hint="check the id and the commit, or copy its files and give the folder",
        ) from error


def _check_files(folder: Path, key: str) -> None:
    try:
        config: Any = read_json(folder / "config.json")
        known = isinstance(config, dict) and "model_type" in config
    except (OSError, ValueError):
        known = False
    if not known:
        raise UsageError(
            "the encoder has no config.json that names its model_type",
            key=key,
            value=folder,
            hint="give a folder that save_pretrained has written",
        )
    if not any(folder.glob("*.safetensors")):
        raise UsageError(
            "the encoder has no weights in safetensors, and nothing else is read (pickled weights can run code)",
            key=key,
            value=folder,
            hint="convert them once: AutoModel.from_pretrained(…).save_pretrained(FOLDER)",
        )


_METHOD = 2  # to be raised whenever decoding or encoding gives other vectors than before
_PREFIX = "features.source.media"
_LOADERS = {
    "text": lazy("mbd.features.media.frozen:loaded_text"),
    "visual": lazy("mbd.features.media.frozen:loaded_visual"),
    "audio": lazy("mbd.features.media.audio:loaded"),
}


@dataclass(frozen=True)
class MediaDamage:
    """Something done to raw content between decoding and encoding.

    Content is a text, a waveform (float32 samples) or frames (uint8, n × height × width × RGB).
    """

    name: str
    """what identifies this damage: kind, strength, seed"""
    apply: Callable[[Any, str], Any]
    """content and its digest (to draw random numbers by) → damaged content"""


@dataclass(frozen=True)
class Loaded:
    """An encoder in memory."""

    decode: Callable[[Any], Any]
    """text or file → raw content, or None if the file has none of this modality"""
    encode: Callable[[Any], Array]
    """raw content → vector; of a sequence its width (of token ids: the vocabulary), and then all its entries"""


@dataclass(frozen=True)
class Encoder:
    """An encoder that is loaded only when it is needed."""

    modality: str
    settings: Mapping[str, Any]
    """what its loader takes"""
    facts: Mapping[str, Any]
    """what decides its vectors"""
    damage: MediaDamage | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that decides the vectors."""
        return canonical_digest({**self.facts, "damage": self.damage.name if self.damage else None})

    def damaged(self, damage: MediaDamage) -> "Encoder":
        """Return the same encoder behind `damage`."""
        return replace(self, damage=damage)

    def loaded(self) -> AbstractContextManager[Loaded]:
        """Load it; within the context it may be used from several threads."""
        context: AbstractContextManager[Loaded] = _LOADERS[self.modality](**self.settings)
        return context


def encoder_of(modality: str, params: MediaSettings, *, keeps: bool = False) -> Encoder:
    """Return the encoder of a modality; one that `keeps` returns token ids, or a vector of each frame.

    That of sound has one vector in any case.
    """
    settings: dict[str, Any] = {"keeps": True} if keeps else {}
    if modality == "audio":
        settings = {"sample_rate": params.sample_rate}
        facts = {**settings, "method": _METHOD, "versions": _versions("av", "librosa", "scipy", "numpy")}
        return Encoder("audio", settings, {"modality": "audio", **facts})
    if modality == "visual":
        settings["frames"] = params.frames
    versions = _versions("torch", "transformers", *(("av", "pillow") if modality == "visual" else ("tokenizers",)))
    key = f"{_PREFIX}.{modality}_encoder"
    folder = encoder_folder(*pinned(modality, params), key)
    facts = {**settings, "method": _METHOD, "files": encoder_files(folder), "versions": versions}
    return Encoder(modality, {**settings, "folder": folder, "key": key}, {"modality": modality, **facts})


def pinned(modality: str, params: MediaSettings) -> tuple[str, str | None]:
    """Return name and revision of the frozen encoder of a modality."""
    return getattr(params, f"{modality}_encoder"), getattr(params, f"{modality}_revision")


def _versions(*packages: str) -> dict[str, str]:
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise ModuleNotFoundError(name=error.name) from error


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

"""The three encoders: what determines their vectors, and how they are loaded when a vector is missing.

A vector is the outcome of decode → (damage) → encode. The digest of an encoder covers all that determines it but the
content: weights, configuration, sampling, the versions of what decodes and computes, and the damage, if any.

A frozen encoder is a local folder as `save_pretrained` writes it, or a hub id at a full commit: a branch or tag can be
moved, and with it every vector. Only configuration, vocabulary and safetensors are fetched and read, never code or
pickles.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mbd.errors import UsageError
from mbd.files import canonical_digest, read_json, sha256_file
from mbd.params.features import MediaSettings
from mbd.registry import lazy
from mbd.tensors import Array

_SUFFIXES = (".json", ".safetensors", ".txt", ".model")
_COMMIT = re.compile(r"^[0-9a-f]{40}$")
_HUB_ID = re.compile(r"^\w[\w.-]*(/\w[\w.-]*)?$")


def encoder_folder(name: str, revision: str | None, key: str) -> Path:
    """Return the folder of the encoder that the parameter `key` names, fetched from the hub if need be."""
    folder = Path(name)
    if folder.is_dir():
        if revision is not None:
            raise UsageError(
                "a revision belongs to a hub id, and this is a local folder",
                key=f"{_section(key)}_revision",
                value=revision,
                hint="set it to null, or give the folder another name than the hub id",
            )
    elif not _HUB_ID.match(name):
        raise UsageError("there is no such encoder folder", key=key, value=name)
    elif revision is None or not _COMMIT.match(revision):
        raise UsageError(
            "there is no such encoder folder, and an encoder from the hub needs the full commit it is pinned to",
            key=f"{_section(key)}_revision",
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


def _section(key: str) -> str:
    return key.removesuffix("_encoder")


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

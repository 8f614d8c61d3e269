"""The three encoders: what determines their vectors, and how they are loaded when a vector is missing.

A vector is the outcome of decode → (damage) → encode. The digest of an encoder covers all that determines it but the
content: weights, configuration, sampling, the versions of what decodes and computes, and the damage, if any.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mbd.errors import MissingExtraError
from mbd.features.media.pretrained import encoder_files, encoder_folder
from mbd.files import canonical_digest
from mbd.params.features import MediaSettings
from mbd.registry import lazy
from mbd.tensors import Array

_METHOD = 1  # to be raised whenever decoding or encoding gives other vectors than before
_PREFIX = "features.source.media"
_MISSING = ("reading raw media", "extract")
_LOADERS = {
    "text": lazy("mbd.features.media.frozen:loaded_text", *_MISSING),
    "visual": lazy("mbd.features.media.frozen:loaded_visual", *_MISSING),
    "audio": lazy("mbd.features.media.audio:loaded", *_MISSING),
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


def text_encoder(params: MediaSettings, *, keeps: bool = False) -> Encoder:
    """Return the encoder of transcripts; one that `keeps` returns token ids."""
    settings = {"keeps": True} if keeps else {}
    return _pretrained("text", params.text_encoder, params.text_revision, settings, ("tokenizers",))


def visual_encoder(params: MediaSettings, *, keeps: bool = False) -> Encoder:
    """Return the encoder of videos; one that `keeps` returns a vector of each frame."""
    settings = {"frames": params.frames} | ({"keeps": True} if keeps else {})
    return _pretrained("visual", params.visual_encoder, params.visual_revision, settings, ("av",))


def audio_encoder(params: MediaSettings, *, keeps: bool = False) -> Encoder:
    """Return the encoder of sound, which has one vector in any case."""
    del keeps
    settings = {"sample_rate": params.sample_rate}
    facts = {**settings, "method": _METHOD, "versions": _versions("av", "librosa", "scipy", "numpy")}
    return Encoder("audio", settings, {"modality": "audio", **facts})


def _pretrained(
    modality: str, name: str, revision: str | None, settings: dict[str, Any], packages: tuple[str, ...]
) -> Encoder:
    versions = _versions("torch", "transformers", *packages)
    key = f"{_PREFIX}.{modality}_encoder"
    folder: Path = encoder_folder(name, revision, key)
    facts = {**settings, "method": _METHOD, "files": encoder_files(folder), "versions": versions}
    return Encoder(modality, {**settings, "folder": folder, "key": key}, {"modality": modality, **facts})


def _versions(*packages: str) -> dict[str, str]:
    try:
        return {package: version(package) for package in packages}
    except PackageNotFoundError as error:
        raise MissingExtraError(*_MISSING, error.name) from error

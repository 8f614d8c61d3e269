"""The damage of :mod:`mbd.features.corruption` to raw content, as encoders take it.

What is drawn depends on the seed and on the content's digest, not on the row: rows with the same content share one
damaged vector as they share a whole one, and the cache can keep it.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from mbd.features.corruption import corrupt_frames, corrupt_text, corrupt_waveform
from mbd.features.media.encoders import MediaDamage
from mbd.params.corruption import CorruptionSettings
from mbd.tensors import Array

_METHOD = 1  # to be raised whenever damage is done in another way than before


def raw_damage(modality: str, params: CorruptionSettings, seed: int) -> MediaDamage:
    """Return the damage of these parameters to the raw content of a modality."""
    corrupted, strengths = _KINDS[modality]
    facts = {"method": _METHOD, "numpy": np.__version__, "seed": seed}
    facts |= {name: getattr(params, name) for name in strengths}
    return MediaDamage(
        name=json.dumps(facts, sort_keys=True),
        apply=lambda content, digest: corrupted(content, params, seed, digest),
    )


def _corrupt_clip(frames: Array, params: CorruptionSettings, seed: int, digest: str) -> Array:
    """Damage one frame after the other: floating-point copies of all frames of a large video would fill the memory."""
    return np.stack([corrupt_frames(frame, params, seed, f"{digest} {k}") for k, frame in enumerate(frames)])


_KINDS: dict[str, tuple[Callable[[Any, CorruptionSettings, int, str], Any], tuple[str, ...]]] = {
    "text": (corrupt_text, ("typos", "reorder")),
    "audio": (corrupt_waveform, ("snr_db",)),
    "visual": (_corrupt_clip, ("blur", "pepper")),
}
"""for each modality what damages it, and the parameters that decide how much"""

"""Source `synthetic`: data with a shared sentiment and private factors in each modality.

For row i and modality m, with u, w, V, a fixed random directions of length √d_m:

    x_i^m = (s_i + κ_m c_i + ν_m e_i) u + g (c_i + ω f_i) w + p_i V + t_i a + noise

s is the sentiment (one number, or one for each class: the label is the greatest after a handicap for the classes that
`features.source.synthetic.skew` makes rarer), c a context that blurs the strongest modality and that
the others show, so that modalities complete each other; p are private factors and t = ±1 is the private
attribute that leakage attacks try to recover. Each draw has a stream of its own: leaving a modality out
changes no byte of the others.

In the preset `sequences` a modality is a sequence of frames, whose private factors p differ from frame to frame. The
first two terms are those of the row in a few frames only, which have an entry along one more direction; in all other
frames they are drawn for that frame alone. The mean over all frames (features.source.sequences=mean) therefore shows
less of the sentiment than a model can find that chooses frames.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from mbd.blocks import in_blocks
from mbd.features.pooling import pool
from mbd.features.rows import Collection, Rows, within
from mbd.features.sources import Source
from mbd.params.features import FeaturesSettings
from mbd.randomness import stream
from mbd.tensors import Array, release, scratch


@dataclass(frozen=True)
class Preset:
    """The shape of a known data set."""

    rows: dict[str, int]
    dims: dict[str, int]
    classes: int
    rows_per_group: int = 16
    frames: dict[str, int] = field(default_factory=dict)
    """longest sequence of each modality; a modality without is a vector"""


_PAPER_DIMS = {"text": 768, "audio": 74, "visual": 512}
PRESETS = {
    "mosi": Preset({"train": 1284, "valid": 229, "test": 686, "calibration": 5000}, _PAPER_DIMS, classes=0),
    "mosei": Preset({"train": 16326, "valid": 1871, "test": 4659, "calibration": 5000}, _PAPER_DIMS, classes=0),
    "iemocap": Preset({"train": 3871, "valid": 430, "test": 1230, "calibration": 5000}, _PAPER_DIMS, classes=4),
}
PRESETS["sequences"] = Preset(
    {"train": 1200, "valid": 300, "test": 600, "calibration": 400},
    {"text": 48, "audio": 24, "visual": 32},
    classes=0,
    frames={"text": 16, "audio": 24, "visual": 20},
)
_EMOTIONS = ("neutral", "happy", "sad", "angry")


@dataclass(frozen=True)
class _Voice:
    """How loudly a modality speaks: κ (context in the sentiment view), ν (its noise), whether it shows c."""

    context: float
    noise: float
    shows_context: bool


_STRONG, _MIDDLE, _WEAK = _Voice(0.39, 0.3, False), _Voice(0.0, 1.85, True), _Voice(0.0, 2.1, True)
_VOICES = {"text": _STRONG, "audio": _MIDDLE, "visual": _WEAK}
_CONTEXT_NOISE = 0.6  # ω
_CONTEXT_GAIN = 0.7  # g
_PRIVATE_FACTORS = 6
_PRIVATE_GAIN = 0.6
_ATTRIBUTE_GAIN = 0.5
_NOISE = 0.8
_MARKED = 3  # frames of a sequence that show the row's own view and hint
_MARK_GAIN = 2.0
_OTHER_FRAMES = 1.5  # deviation of view and hint in all other frames


def read(params: FeaturesSettings) -> Collection:
    """Draw the data set that `features.source` describes."""
    preset, own = PRESETS[params.source.preset], params.source.synthetic
    preset = replace(preset, frames=own.frames or preset.frames)
    rows = own.rows or preset.rows
    dims = own.dims or preset.dims
    if params.source.modalities is not None:
        dims = {name: dims.get(name, preset.dims.get(name, 64)) for name in params.source.modalities}
    classes = preset.classes if own.classes is None else own.classes
    named = classes == len(_EMOTIONS) and params.source.preset == "iemocap"
    return Collection(
        name=f"synthetic-{params.source.preset}",
        task="classification" if classes else "regression",
        classes=_EMOTIONS if named else tuple(f"class{k}" for k in range(classes)),
        splits={split: _draw(split, n, dims, classes, preset, params) for split, n in rows.items()},
    )


def _draw(split: str, n: int, dims: dict[str, int], classes: int, preset: Preset, params: FeaturesSettings) -> Rows:
    shared = stream(params.seed, "synthetic", "shared", split)
    sentiment = shared.standard_normal((n, max(classes, 1)), dtype=np.float32)
    context = shared.standard_normal(sentiment.shape, dtype=np.float32)
    if classes:
        rarity = params.source.synthetic.skew * np.log1p(np.arange(classes))
        labels: Array = (sentiment - rarity).argmax(axis=1).astype(np.int64)
    else:
        low, high = params.label_range
        middle, half = (low + high) / 2, (high - low) / 2
        labels = np.clip(np.round((middle + half / 2 * sentiment[:, 0]) / 0.2) * 0.2, low, high).astype(np.float32)
    features, attributes, lengths = {}, {}, {}
    for place, (name, dim) in enumerate(dims.items()):
        voice = _VOICES.get(name, (_STRONG, _MIDDLE, _WEAK)[min(place, 2)])
        rng = stream(params.seed, "synthetic", "modality", name, split)
        factors, attributes[name] = _factors(voice, sentiment, context, rng)
        if name in preset.frames:
            factors, lengths[name] = _in_time(factors, 2 * sentiment.shape[1], preset.frames[name], rng)
        features[name] = _shown(name, factors, dim, rng, params.seed)
        if name in lengths:
            features[name] *= within(lengths[name], preset.frames[name])[:, :, None]
    if params.source.sequences == "mean":
        features |= {name: pool(features[name], lengths.pop(name)).features for name in list(lengths)}
    groups = np.char.add(f"{split}-v", np.char.zfill((np.arange(n) // preset.rows_per_group).astype(np.str_), 4))
    ids = np.char.add(np.char.add(groups, "_"), (np.arange(n) % preset.rows_per_group).astype(np.str_))
    return Rows.of(ids, labels, features, groups=groups, attributes=attributes, lengths=lengths)


def _factors(voice: _Voice, sentiment: Array, context: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return what a modality shows of each row (view, hint, private factors, attribute), and the attribute."""
    n, width = sentiment.shape
    view = sentiment + voice.context * context + voice.noise * rng.standard_normal((n, width), dtype=np.float32)
    hint = context + _CONTEXT_NOISE * rng.standard_normal((n, width), dtype=np.float32)
    private = rng.standard_normal((n, _PRIVATE_FACTORS), dtype=np.float32)
    attribute = rng.integers(0, 2, n, dtype=np.int8)
    factors = np.hstack(
        [
            view,
            (_CONTEXT_GAIN if voice.shows_context else 0.0) * hint,
            _PRIVATE_GAIN * private,
            _ATTRIBUTE_GAIN * (2.0 * attribute[:, None] - 1.0),
        ]
    ).astype(np.float32)
    return factors, attribute


def _in_time(factors: Array, own: int, frames: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the factors of each frame (n × T × k + 1) and the lengths; the first `own` show in marked frames only."""
    n = len(factors)
    lengths = rng.integers(max(frames // 2, 1), frames + 1, n)
    keys = np.where(within(lengths, frames), rng.random((n, frames)), np.inf)
    marked = keys.argsort(axis=1).argsort(axis=1) < np.minimum(_MARKED, lengths)[:, None]
    inside = np.repeat(factors[:, None], frames, axis=1)
    scale = factors[:, :own].std(0) * _OTHER_FRAMES
    other = rng.standard_normal((n, frames, own), dtype=np.float32) * scale
    inside[:, :, :own] = np.where(marked[:, :, None], inside[:, :, :own], other)
    inside[:, :, own:-1] = _PRIVATE_GAIN * rng.standard_normal((n, frames, _PRIVATE_FACTORS), dtype=np.float32)
    mark = np.float32(_MARK_GAIN) * marked[:, :, None]
    return np.concatenate([inside, mark], axis=2), lengths


def _shown(name: str, factors: Array, dim: int, rng: np.random.Generator, seed: int) -> Array:
    """Return the features (… × dim) that show the factors (… × k), each along a direction of the modality."""
    # The directions belong to the modality, not to the split.
    directions = stream(seed, "synthetic", "directions", name).standard_normal(
        (factors.shape[-1], dim), dtype=np.float32
    )
    directions *= np.sqrt(dim) / np.linalg.norm(directions, axis=1, keepdims=True)
    shown = scratch((*factors.shape[:-1], dim), np.float32)
    for own in in_blocks(np.arange(len(factors)), math.prod(shown.shape[1:])):
        rows = slice(own[0], own[-1] + 1)
        block = rng.standard_normal(shown[rows].shape, dtype=np.float32)
        block *= np.float32(_NOISE)
        block += factors[rows] @ directions
        shown[rows] = block
        release(shown)
    return shown


SOURCE = Source(read)

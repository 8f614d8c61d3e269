"""Running a backbone for an attack: outputs over all availability masks, and all activations.

Masks are all sets of the retained modalities that the model takes (a sample of 64 where there are more), the empty one
only where m* is fed. A row is given
what a mask names as far as the row has it; everything it has, if that would be nothing. Outputs are scores, or
logarithms of probabilities. Activations are those of rows with all they have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mbd.features.check import all_finite
from mbd.features.rows import Rows
from mbd.formats.features import Shape, lengths_of
from mbd.model.predictor import (
    AnswersSome,
    LoadedBackbone,
    OffersActivations,
    zero_where_absent,
)
from mbd.randomness import stream
from mbd.tensors import Array

_SMALLEST_PROBABILITY = 1e-6
_MOST_MASKS = 64
Mask = tuple[str, ...]


@dataclass(frozen=True)
class Extraction:
    """What a model computes for some rows."""

    masks: tuple[Mask, ...]
    """the modalities given, m* (where it was fed) aside; the last mask is everything"""
    outputs: Array
    """score, or logarithm of each class's probability, of each row under each mask (n × masks × outputs)"""
    activations: Mapping[str, Array]
    """by place in the model (n × width each)"""

    @property
    def complete(self) -> Array:
        """The outputs of rows with all they have (n × outputs)."""
        return self.outputs[:, -1]

    def take(self, index: Array) -> "Extraction":
        """Return the same of some of the rows."""
        return Extraction(self.masks, self.outputs[index], {name: x[index] for name, x in self.activations.items()})


@dataclass(frozen=True)
class Feeding:
    """Which inputs of a model get what."""

    inputs: Mapping[str, Shape]
    """every input of the model with its shape"""
    retained: Mask
    """inputs that are retained modalities of the data"""
    entries: Mask
    """inputs that get m*; empty if it is not fed"""
    modality: str
    """m*"""

    def masks(self) -> tuple[Mask, ...]:
        """Return the sets of retained modalities that are given: all, or of more than 64 a sample by a fixed seed."""
        first, count = 0 if self.entries else 1, len(self.retained)
        if 2**count - first <= _MOST_MASKS:
            return tuple(mask for size in range(first, count + 1) for mask in combinations(self.retained, size))
        singles = [mask for size in (first, 1) for mask in combinations(self.retained, size)]
        draw = stream(0, "masks", *self.retained)
        drawn = draw.random((_MOST_MASKS, count)) < draw.random((_MOST_MASKS, 1))
        sampled = [tuple(m for m, given in zip(self.retained, row, strict=True) if given) for row in drawn]
        kept = [mask for mask in dict.fromkeys([*singles, *sampled]) if first <= len(mask) < count]
        return (*kept[: _MOST_MASKS - 1], self.retained)

    def __call__(self, rows: Rows, mask: Mask) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return features (with lengths) and availability of every input of the model."""
        n = len(rows)
        there = {m: rows.available[m] if m in self.retained else np.zeros(n, bool) for m in self.inputs}
        there |= dict.fromkeys(self.entries, rows.available[self.modality])
        given = {m: bits & (m in mask or m in self.entries) for m, bits in there.items()}
        nothing = ~np.any(list(given.values()), axis=0)
        given = {m: bits | (nothing & there[m]) for m, bits in given.items()}
        sources = {m: rows.features[m] for m in self.retained}
        sources |= {m: _to_shape(rows.features[self.modality], self.inputs[m]) for m in self.entries}
        features = {
            m: zero_where_absent(sources[m], given[m]) if m in sources else np.zeros((n, *shape.size), np.float32)
            for m, shape in self.inputs.items()
        }
        for m in sources:
            lengths = rows.lengths.get(self.modality if m in self.entries else m)
            if lengths is not None and self.inputs[m].has_lengths:
                features[lengths_of(m)] = np.clip(lengths, 1, self.inputs[m].size[0])
        return features, given


def activations(backbone: LoadedBackbone, feeding: Feeding, rows: Rows) -> dict[str, Array]:
    """Return the activations of the backbone for `rows`; empty if it does not show any."""
    if not isinstance(backbone, OffersActivations):
        return {}
    values = backbone.activations(*feeding(rows, feeding.retained))
    return {name: _finite(x) for name, x in values.items()}


def answers(backbone: LoadedBackbone, feeding: Feeding, rows: Rows, masks: Sequence[Mask]) -> Array:
    """Return the outputs under these masks (n × masks × outputs)."""
    return _finite(np.stack([_logits(backbone, *feeding(rows, mask)) for mask in masks], axis=1))


def _logits(backbone: LoadedBackbone, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
    answered = np.ones(len(next(iter(available.values()))), bool)
    if isinstance(backbone, AnswersSome):
        answered = backbone.answered(available)
    if not answered.all():
        features, available = ({m: x[answered] for m, x in given.items()} for given in (features, available))
    scores = backbone.predict(features, available)
    if scores.ndim > 1:
        scores = np.log(np.maximum(scores, _SMALLEST_PROBABILITY))
    out = np.zeros((len(answered), scores.shape[1] if scores.ndim > 1 else 1), np.float32)
    out[answered] = scores.reshape(len(scores), -1)
    return out


def _finite(values: Array) -> Array:
    """Return values with 0 for what is no number: a broken model says nothing there."""
    if all_finite(values):
        return values
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _to_shape(array: Array, shape: Shape) -> Array:
    """Return rows cut to, or filled up with zeros to, a shape."""
    if array.ndim != 1 + len(shape.size):
        array = array.reshape(len(array), -1, *[1] * (len(shape.size) - 1))
    tokens = shape.kind == "tokens"
    out = np.zeros((len(array), *shape.size), np.int64 if tokens else np.float32)
    common = tuple(slice(min(sizes)) for sizes in zip(out.shape, array.shape, strict=True))
    out[common] = np.clip(array[common], 0, (shape.vocabulary or 1) - 1) if tokens else array[common]
    return out

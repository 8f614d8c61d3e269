"""The linear map of a joint network, in closed form: ridge for sets of modalities, as one map.

For each modality alone, each pair and all together, ridge is fitted to the train rows that have the whole set S, and to
such valid rows with `model.joint.splits=train+valid`, with the strength of least leave-one-out error: nothing about it
is chosen by valid rows, and the epoch of the networks is chosen without it. That gives weights V_{m,S}. The network has

    V_{m,S} ≈ W_m + Σ_{k ∈ S, k ≠ m} W_{k,m}          least squares over the sets that were fitted

which is exact for two modalities. For three, seven sets share nine matrices instead of twelve; out of fold the
difference is within noise.

Of classes the targets are ones at the labels, and what comes out is multiplied by the number for which the ridge of
train rows alone has, as logits, the least cross-entropy on valid rows: the class of greatest output stays that of
ridge.

Rows are read in blocks, on one thread: the last bits of a factorisation depend on the number of threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from threadpoolctl import threadpool_limits

from mbd.blocks import Columns, in_blocks
from mbd.evaluation.ridge import RidgeSums
from mbd.features.rows import Rows
from mbd.model.coordinates import cross_entropy
from mbd.model.networks import REACH
from mbd.records import dotless
from mbd.tensors import Array

_FEWEST_ROWS = 2
_SHARPNESS = 2.0 ** np.arange(-2, 6, 0.25)  # what scores of classes are multiplied by, to choose from

Tag = tuple[str, ...]


def linear_map(
    train: Rows, valid: Rows, scaling: Mapping[str, Array], classes: int, *, fit_valid: bool = False
) -> dict[str, Array]:
    """Return the tensors of the map, by their names in the network, as `scaling` has those of the networks.

    It is fitted to train rows, with `fit_valid` to valid rows, too, by which scores of classes become logits. Without
    classes it is a regression.
    """
    names = tuple(train.features)
    with threadpool_limits(1):
        fitted, offset = _fit_tags((train,), scaling, classes)
        factor = _sharpness(fitted, offset, valid, scaling) if classes else 1.0
        if fit_valid:
            fitted, offset = _fit_tags((train, valid), scaling, classes)
    shared = {m: _share_weights(m, train.features[m].shape[1], len(offset), names, fitted) for m in names}
    tensors = {"linear.weight": np.vstack([shared[m][m] for m in names]).T, "linear.bias": offset}
    for m in names:
        beside = [shared[k][m] for k in names if k != m]
        tensors[f"modality.{dotless(m)}.beside.weight"] = np.vstack([np.zeros((0, len(offset))), *beside]).T
    return {name: np.ascontiguousarray(factor * values, np.float32) for name, values in tensors.items()}


@dataclass(frozen=True)
class _Inputs:
    """Modalities side by side as the network sees them, of the rows of one or more splits that have them all."""

    parts: tuple[Columns, ...]
    mean: Array
    scale: Array
    labels: Array

    @classmethod
    def of(cls, splits: Sequence[Rows], tag: Tag, scaling: Mapping[str, Array]) -> "_Inputs":
        there = [np.flatnonzero(np.all([rows.available[m] for m in tag], axis=0)) for rows in splits]
        mean, scale = (
            np.concatenate([scaling[f"modality.{dotless(m)}.{part}"] for m in tag]) for part in ("mean", "scale")
        )
        parts = [Columns(tuple(r.features[m] for m in tag), own) for r, own in zip(splits, there, strict=True)]
        labels = [rows.labels[own] for rows, own in zip(splits, there, strict=True)]
        return cls(tuple(parts), mean, scale, np.concatenate(labels))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.labels), len(self.mean)

    def __getitem__(self, rows: Array | slice) -> Array:
        index, ends = np.arange(len(self.labels))[rows], np.cumsum([part.shape[0] for part in self.parts])
        own = np.split(index, np.searchsorted(index, ends[:-1]))
        columns = [part[o - end + part.shape[0]] for part, o, end in zip(self.parts, own, ends, strict=True)]
        inputs: Array = np.concatenate(columns) if len(columns) > 1 else columns[0]
        inputs -= self.mean
        inputs /= self.scale
        return np.clip(inputs, -REACH, REACH, out=inputs)

    def times(self, weights: Array) -> Array:
        """Return the product with weights for each row."""
        rows, columns = self.shape
        parts = [self[own] @ weights for own in in_blocks(np.arange(rows), columns)]
        return np.concatenate([np.zeros((0, weights.shape[1])), *parts])


def _targets(labels: Array, scaling: Mapping[str, Array], classes: int) -> Array:
    if classes:
        return np.eye(classes)[labels]
    scaled: Array = ((labels - scaling["label_mean"]) / scaling["label_scale"])[:, None].astype(np.float64)
    return scaled


def _fit_tags(
    splits: Sequence[Rows], scaling: Mapping[str, Array], classes: int
) -> tuple[dict[Tag, dict[str, Array]], Array]:
    """Return the weights of each set of modalities that enough rows have, and the mean of all targets."""
    offset = _targets(np.concatenate([rows.labels for rows in splits]), scaling, classes).mean(0)
    names = tuple(splits[0].features)
    everything = _Inputs.of(splits, names, scaling)
    ends = np.cumsum([0, *(x.shape[1] for x in splits[0].features.values())])
    place = {m: np.arange(start, end) for m, start, end in zip(names, ends, ends[1:], strict=False)}
    complete, fitted = _sums(everything, scaling, classes), {}
    for tag in _tags(names):
        own = _Inputs.of(splits, tag, scaling)
        if own.shape[0] < _FEWEST_ROWS:
            continue
        if own.shape[0] == everything.shape[0]:  # the same rows: their products are computed once
            weights = complete.fit(np.concatenate([place[m] for m in tag])).weights
        else:
            weights = _sums(own, scaling, classes).fit().weights
        ends_of_tag = np.cumsum([len(place[m]) for m in tag])[:-1]
        fitted[tag] = dict(zip(tag, np.split(weights, ends_of_tag), strict=True))
    return fitted, offset


def _sums(inputs: _Inputs, scaling: Mapping[str, Array], classes: int) -> RidgeSums:
    columns = inputs.shape[1]
    return RidgeSums(inputs, _targets(inputs.labels, scaling, classes), np.zeros(columns), np.ones(columns))


def _tags(names: Tag) -> Iterator[Tag]:
    for size in sorted({1, min(2, len(names)), len(names)}):
        yield from combinations(names, size)


def _share_weights(
    modality: str, dim: int, outputs: int, names: Tag, fitted: Mapping[Tag, Mapping[str, Array]]
) -> dict[str, Array]:
    """Return W_m by the name of the modality itself, and W_{k,m} by the name of k."""
    others = [k for k in names if k != modality]
    tags = [tag for tag in fitted if modality in tag]
    if not tags:
        return {k: np.zeros((dim, outputs)) for k in names}
    present = np.array([[1.0, *(float(k in tag) for k in others)] for tag in tags])
    solved = np.tensordot(np.linalg.pinv(present), np.stack([fitted[tag][modality] for tag in tags]), axes=1)
    return dict(zip((modality, *others), solved, strict=True))


def _sharpness(
    fitted: Mapping[Tag, Mapping[str, Array]], offset: Array, valid: Rows, scaling: Mapping[str, Array]
) -> float:
    """Return the factor of least cross-entropy on valid rows, each set of modalities counting the same."""
    scores: list[tuple[Array, Array]] = []
    for tag, weights in fitted.items():
        inputs = _Inputs.of((valid,), tag, scaling)
        if inputs.shape[0]:
            answers = inputs.times(np.vstack(list(weights.values()))) + offset
            scores.append((answers, inputs.labels))

    def loss(factor: float) -> float:
        return float(np.mean([cross_entropy(factor * answers, labels) for answers, labels in scores]))

    return float(min(_SHARPNESS, key=loss)) if scores else 1.0

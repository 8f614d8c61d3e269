"""The linear map of a joint network, in closed form: ridge for sets of modalities, as one map.

For each modality alone, each pair and all together, ridge is fitted to the rows that have the whole set S (at most
20,000 of them), with the strength of least leave-one-out error. That gives weights V_{m,S}. The network has

    V_{m,S} ≈ W_m + Σ_{k ∈ S, k ≠ m} W_{k,m}          least squares over the sets that were fitted

which is exact for two modalities. For three, seven sets share nine matrices instead of twelve; out of fold the
difference is within noise (`python -m studies.joint`).

Of classes the targets are ones at the labels, and what comes out is multiplied by the number for which the predictions
of rows left out have the least cross-entropy as logits: the class of greatest output stays that of ridge.

Everything runs on one thread: the last bits of a factorisation depend on the number of threads.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
from threadpoolctl import threadpool_limits

from mbd.evaluation.ridge import solve_ridge
from mbd.names import dotless
from mbd.tensors import Array

_MOST_ROWS = 20_000
_FEWEST_ROWS = 2
_SHARPNESS = 2.0 ** np.arange(-2, 6, 0.25)  # what scores of classes are multiplied by, to choose from


def linear_map(
    inputs: Mapping[str, Array], available: Mapping[str, Array], labels: Array, classes: int
) -> dict[str, Array]:
    """Return the tensors of the map, by their names in the network.

    Args:
        inputs: Standardised inputs of the train rows, zero where they are missing.
        available: Which rows have a modality.
        labels: Labels on the scale on which they are learnt; of classes, their numbers.
        classes: How many classes there are; 0: regression.

    """
    targets = np.eye(classes)[labels] if classes else labels[:, None].astype(np.float64)
    offset = targets.mean(0)
    fitted: dict[tuple[str, ...], dict[str, Array]] = {}
    left_out: list[tuple[Array, Array]] = []
    with threadpool_limits(1):
        for tag in _tags(tuple(inputs)):
            rows = np.flatnonzero(np.all([available[m] for m in tag], axis=0))
            if len(rows) < _FEWEST_ROWS:
                continue
            rows = rows[:: -(-len(rows) // _MOST_ROWS)]
            x = np.hstack([inputs[m][rows] for m in tag]).astype(np.float64)
            solution = solve_ridge(x, targets[rows] - offset)
            ends = np.cumsum([inputs[m].shape[1] for m in tag])[:-1]
            fitted[tag] = dict(zip(tag, np.split(solution.weights, ends), strict=True))
            left_out.append((solution.left_out, labels[rows]))
        factor = _sharpness(left_out, offset) if classes else 1.0
        weights = {m: _shared(m, x.shape[1], len(offset), tuple(inputs), fitted) for m, x in inputs.items()}
    return _named(
        {key: factor * values for own in weights.values() for key, values in own.items()},
        factor * offset,
        tuple(inputs),
    )


def _tags(names: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for size in sorted({1, min(2, len(names)), len(names)}):
        yield from combinations(names, size)


def _shared(
    modality: str, dim: int, outputs: int, names: tuple[str, ...], fitted: Mapping[tuple[str, ...], Mapping[str, Array]]
) -> dict[tuple[str, str], Array]:
    """Return W_m as (m, m) and W_{k,m} of every other k as (k, m)."""
    others = [k for k in names if k != modality]
    tags = [tag for tag in fitted if modality in tag]
    if not tags:
        return {(k, modality): np.zeros((dim, outputs)) for k in names}
    present = np.array([[1.0, *(float(k in tag) for k in others)] for tag in tags])
    solved = np.tensordot(np.linalg.pinv(present), np.stack([fitted[tag][modality] for tag in tags]), axes=1)
    return {(k, modality): values for k, values in zip((modality, *others), solved, strict=True)}


def _sharpness(left_out: list[tuple[Array, Array]], offset: Array) -> float:
    """Return the factor of least cross-entropy on rows that were left out, each set of modalities counting the same."""

    def loss(factor: float) -> float:
        return float(np.mean([_cross_entropy(factor * (scores + offset), labels) for scores, labels in left_out]))

    return float(min(_SHARPNESS, key=loss)) if left_out else 1.0


def _cross_entropy(logits: Array, labels: Array) -> float:
    shifted = logits - logits.max(1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]).mean())


def _named(weights: Mapping[tuple[str, str], Array], offset: Array, names: tuple[str, ...]) -> dict[str, Array]:
    outputs = len(offset)
    tensors = {"linear.weight": np.vstack([weights[m, m] for m in names]).T, "linear.bias": offset}
    for m in names:
        beside = [weights[m, k] for k in names if k != m]
        tensors[f"modality.{dotless(m)}.beside.weight"] = np.vstack([np.zeros((0, outputs)), *beside]).T
    return {name: np.ascontiguousarray(values, np.float32) for name, values in tensors.items()}

"""Adversary `distinguish`: tells models that were exposed to a modality from never-exposed ones, by weights alone.

A study, on request: it needs populations, not one model. Each model becomes a vector of statistics of its tensors
(only of those that all models have in the same shape):

    log ‖W‖, mean, log max|w|, kurtosis;    of matrices also log s₁, stable rank ‖W‖²/s₁², entropy of s²/Σs²

A ridge classifier scores each pair of one exposed and one never-exposed model after training on all others. With the
hat matrix H and I = {i, j}, leaving both out costs a 2 × 2 inverse: e_I = (1 − H_II)⁻¹ (y − Hy)_I. The AUC is the share
of pairs in the right order; the null is the same number for permuted labels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.model.checkpoint import load_model
from mbd.randomness import stream
from mbd.tensors import Array

_FEWEST = 3
_CHUNK = 64
_TINY = 1e-30
_MOST_TELLING = 5


@dataclass(frozen=True)
class Distinguished:
    """How well two populations of models can be told apart."""

    auc: float
    """share of pairs (exposed, never exposed) that come out in the right order"""
    p_value: float
    """probability that permuted labels do as well"""
    null: tuple[float, float]
    """the middle 95 % of the AUC under permuted labels"""
    exposed: int
    never_exposed: int
    statistics: int
    """how many statistics of the weights vary between models"""
    telling: tuple[tuple[str, float], ...]
    """the statistics in which the populations differ most: name, and difference in pooled deviations"""


def distinguish(
    exposed: Sequence[Path], never_exposed: Sequence[Path], *, seed: int, permutations: int = 1000
) -> Distinguished:
    """Compare two populations of model folders."""
    if min(len(exposed), len(never_exposed)) < _FEWEST:
        raise UsageError(
            f"telling populations of models apart needs at least {_FEWEST} models of each kind",
            value=f"{len(exposed)} exposed, {len(never_exposed)} never exposed",
            hint="train more with `mbd train --seeds`",
        )
    models = [load_model(folder)[1] for folder in (*exposed, *never_exposed)]
    names, matrix = weight_statistics(models)
    labels = np.repeat([1.0, -1.0], [len(exposed), len(never_exposed)])
    return tell_apart(names, matrix, labels, seed=seed, permutations=permutations)


def tell_apart(
    names: Sequence[str], matrix: Array, labels: Array, *, seed: int, permutations: int = 1000
) -> Distinguished:
    """Tell rows of `matrix` (models × statistics) with label 1 from those with label −1."""
    varies = np.ptp(matrix, axis=0) > 0
    x = matrix[:, varies]
    x = (x - x.mean(0)) / np.where(varies.any(), x.std(0), 1)
    draw = stream(seed, "attacks", "distinguish")
    shuffled = draw.permuted(np.tile(labels, (permutations, 1)), axis=1)
    aucs = _pairwise_auc(x, np.vstack([labels, shuffled]))
    ours, null = float(aucs[0]), aucs[1:]
    gap = _gaps(x, labels)
    kept = [name for name, kept in zip(names, varies, strict=True) if kept]
    order = np.argsort(-np.abs(gap), kind="stable")[:_MOST_TELLING]
    low, high = np.quantile(null, [0.025, 0.975])
    return Distinguished(
        auc=ours,
        p_value=float((1 + np.sum(null >= ours - 1e-12)) / (1 + permutations)),
        null=(float(low), float(high)),
        exposed=int(np.sum(labels > 0)),
        never_exposed=int(np.sum(labels < 0)),
        statistics=x.shape[1],
        telling=tuple((kept[i], float(gap[i])) for i in order),
    )


def weight_statistics(models: Sequence[Mapping[str, Array]]) -> tuple[list[str], Array]:
    """Return the names of the statistics and their values (models × statistics)."""
    first = models[0]
    shared = [
        name
        for name, tensor in first.items()
        if tensor.size > 1
        and np.issubdtype(tensor.dtype, np.floating)
        and all(name in other and other[name].shape == tensor.shape for other in models)
    ]
    if not shared:
        raise DataError(
            "the models have no tensor in common",
            hint="compare models of one shape: those that were deleted from, and those trained without the modality",
        )
    rows = [{f"{n}: {k}": v for n in shared for k, v in _statistics(model[n]).items()} for model in models]
    return list(rows[0]), np.array([list(row.values()) for row in rows])


def _statistics(tensor: Array) -> dict[str, float]:
    values = np.asarray(tensor, np.float64)
    centred = values - values.mean()
    variance = float(np.mean(centred**2))
    found = {
        "log norm": _log(float(np.linalg.norm(values))),
        "mean": float(values.mean()),
        "log largest": _log(np.abs(values).max()),
        "kurtosis": float(np.mean(centred**4)) / max(variance**2, _TINY),
    }
    if values.ndim != 2 or min(values.shape) < 2:
        return found
    gram = values @ values.T if values.shape[0] <= values.shape[1] else values.T @ values
    squares = np.maximum(np.linalg.eigvalsh(gram), 0)
    shares = squares / max(float(squares.sum()), _TINY)
    return found | {
        "log spectral norm": _log(np.sqrt(squares[-1])),
        "stable rank": float(squares.sum() / max(squares[-1], _TINY)),
        "spectral entropy": float(-np.sum(shares * np.log(np.maximum(shares, _TINY)))),
    }


def _log(value: float) -> float:
    return float(np.log(max(value, _TINY)))


def _pairwise_auc(x: Array, labels: Array) -> Array:
    """Return, for each row of `labels` (b × n), the AUC of ridge with each pair of unlike labels left out."""
    n = len(x)
    # A constant statistic stands for the offset; mean diagonal and strength are 1, so no scale has to be chosen.
    gram = x @ x.T / max(x.shape[1], 1) + 1
    hat = np.linalg.solve(gram + np.eye(n), gram)
    free = 1 - np.diag(hat)
    determinant = np.outer(free, free) - hat**2
    found = []
    for start in range(0, len(labels), _CHUNK):
        y = labels[start : start + _CHUNK]
        rest = y - y @ hat
        # e_i − e_j for all pairs at once.
        across = ((free - hat) * rest[:, :, None] - (free[:, None] - hat) * rest[:, None, :]) / determinant
        order = y[:, :, None] - y[:, None, :] - across
        pairs = (y[:, :, None] > 0) & (y[:, None, :] < 0)
        right = np.where(np.abs(order) < 1e-12, 0.5, order > 0)
        found.append((right * pairs).sum((1, 2)) / pairs.sum((1, 2)))
    return np.concatenate(found)


def _gaps(x: Array, labels: Array) -> Array:
    ours, theirs = x[labels > 0], x[labels < 0]
    pooled = np.sqrt((ours.var(0, ddof=1) + theirs.var(0, ddof=1)) / 2)
    gap: Array = (ours.mean(0) - theirs.mean(0)) / np.maximum(pooled, 1e-12)
    return gap

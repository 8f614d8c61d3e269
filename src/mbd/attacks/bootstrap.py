"""Confidence intervals of attack results, by resampling rows; all resamples at once.

A resample is a weight for each row: how often it was drawn (b × n counts). Rows of one group (a speaker, a video) are
drawn together, because they are alike; with fewer than 8 groups, row by row. Two models attacked on the same rows are
compared under the same weights, so that the difficulty of a row cancels out:

    interval     percentiles of statistic(rows, W), widened around the measure by √(g/(g−1)) for g groups
    difference   the same for statistic(rows_a, W) − statistic(rows_b, W)
"""

import numpy as np

from mbd.attacks.attack import AttackEvidence
from mbd.formats.leakage import Interval
from mbd.params import AttacksSettings
from mbd.randomness import stream
from mbd.tensors import Array

_FEWEST_GROUPS = 8


def resample_weights(groups: Array | int, resamples: int, draw: np.random.Generator) -> Array:
    """Return how often each row is drawn (resamples × n); `groups` names each row's group, or is n."""
    names = np.arange(groups) if isinstance(groups, int) else np.unique(groups, return_inverse=True)[1].reshape(-1)
    count = int(names.max()) + 1
    drawn = draw.multinomial(count, np.full(count, 1 / count), size=resamples)
    weights: Array = drawn[:, names].astype(np.float64)
    return weights


def resampled(evidence: AttackEvidence, params: AttacksSettings) -> Array:
    """Return the measure of each resample; those of two models on the same rows are paired."""
    return evidence.statistic(evidence.rows, _weights(evidence, params))


def _weights(evidence: AttackEvidence, params: AttacksSettings) -> Array:
    # The same stream whatever the evidence: two pieces about the same rows get the same weights.
    draw = stream(params.seed, "attacks", "bootstrap")
    names = evidence.groups
    groups = len(evidence.rows) if names is None or len(np.unique(names)) < _FEWEST_GROUPS else names
    return resample_weights(groups, params.resamples, draw)


def units(evidence: AttackEvidence) -> int:
    """Return the number of units drawn in a resample: groups, or rows if there are too few groups."""
    groups = len(evidence.rows) if evidence.groups is None else len(np.unique(evidence.groups))
    return groups if groups >= _FEWEST_GROUPS else len(evidence.rows)


def percentiles(value: float, values: Array, evidence: AttackEvidence, params: AttacksSettings) -> Interval:
    """Return the interval that resampled `values` leave around a measure, or a difference of measures."""
    count = units(evidence)
    widen = np.sqrt(count / max(count - 1, 1))
    tail = (1 - params.confidence) / 2
    # A resample may lack a class altogether; it is left out.
    low, high = np.nanquantile(values, [tail, 1 - tail]) if np.isfinite(values).any() else (value, value)
    return Interval(value=value, low=value + float(low - value) * widen, high=value + float(high - value) * widen)


def mean(rows: Array, weights: Array) -> Array:
    """Return the mean of the first column."""
    return _ratio(weights @ rows[:, 0], weights.sum(1))


def accuracy(rows: Array, weights: Array) -> Array:
    """Return the share of hits; columns: truth, guess."""
    return _ratio(weights @ (rows[:, 0] == rows[:, 1]), weights.sum(1))


def balanced_accuracy(rows: Array, weights: Array) -> Array:
    """Return the mean of the shares of hits among the rows of each class, ½ by any constant guess; truth, guess."""
    truth, hits = rows[:, 0] > 0, rows[:, 0] == rows[:, 1]
    positive = _ratio(weights @ (hits & truth), weights @ truth)
    negative = _ratio(weights @ (hits & ~truth), weights @ ~truth)
    return (positive + negative) / 2


def r_squared(rows: Array, weights: Array) -> Array:
    """Return R² = 1 − Σ error / Σ error of the mean; columns: squared error, squared error of guessing the mean."""
    return 1 - _ratio(weights @ rows[:, 0], weights @ rows[:, 1])


def auc(rows: Array, weights: Array) -> Array:
    """Return the probability that a positive row scores above a negative one, ties ½; columns: truth, score."""
    positive, negative = _by_score(rows, weights)
    below = np.cumsum(negative, axis=1) - negative / 2
    return _ratio((positive * below).sum(1), positive.sum(1) * negative.sum(1))


def tpr_at_fpr(rows: Array, weights: Array, fpr: float = 0.01) -> Array:
    """Return the largest share of positives found with at most `fpr` false alarms; columns: truth, score."""
    positive, negative = _by_score(rows, weights)
    found = np.cumsum(positive[:, ::-1], axis=1)
    alarms = np.cumsum(negative[:, ::-1], axis=1)
    allowed = alarms <= fpr * negative.sum(1, keepdims=True) + 1e-9
    return _ratio(np.where(allowed, found, 0).max(1), positive.sum(1))


def _by_score(rows: Array, weights: Array) -> tuple[Array, Array]:
    """Return the weight of positives and of negatives at each distinct score, ascending (b × scores each)."""
    order = np.argsort(rows[:, 1], kind="stable")
    truth, score = rows[order, 0] > 0, rows[order, 1]
    starts = np.flatnonzero(np.r_[True, score[1:] != score[:-1]])
    ordered = weights[:, order]
    return np.add.reduceat(ordered * truth, starts, axis=1), np.add.reduceat(ordered * ~truth, starts, axis=1)


def _ratio(above: Array, below: Array) -> Array:
    """Return above / below, NaN where there is nothing to divide by."""
    ratio: Array = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
    return ratio

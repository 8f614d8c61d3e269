"""Confidence intervals of attack results, by resampling rows; many resamples at once.

A resample is a weight for each row: how often it was drawn (b × n counts). Rows of one group (a speaker, a video) are
drawn together, because they are alike; with fewer than 8 groups, row by row. Two models attacked on the same rows are
compared under the same weights, so that the difficulty of a row cancels out:

    interval     percentiles of statistic(rows, W), widened around the measure by √(g/(g−1)) for g groups
    difference   the same for statistic(rows_a, W) − statistic(rows_b, W)

Resampling cannot show what is rarer than the rows at hand: if two models answer alike on every row, every resample says
0 ± 0. Where fewer than ten groups differ, and fewer than half of them, the difference is bounded by how many could
have, instead: with k of g groups unlike, at most a share u of all groups is (Clopper–Pearson; for k = 0 the rule of
three, u ≈ 3/g at 95 %), and the measure moves by at most u times its range. For R², and for a TPR at a fixed FPR, this
takes rows to weigh alike.

What an audit at these rows could have found is simulated with the same resamples: an effect δ would have been measured
as δ + noise, and found if that lies beyond a threshold by more than the width w of its interval. So the smallest effect
found with probability p is

    detectable   threshold + w − min(0, q),   q: the (1 − p)-quantile of the noise, statistic(rows, W) − statistic(rows)
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.stats import norm, t

from mbd.attacks.attack import AttackEvidence
from mbd.formats.leakage import Interval
from mbd.params.deletion import AttacksSettings
from mbd.privacy.audit import proportion_bounds
from mbd.randomness import stream
from mbd.tensors import Array

_FEWEST_UNLIKE = 10
"""differing groups from which on resampling is trusted, or half of all groups"""
_TINY = 1e-12
_AT_ONCE = 200
"""resamples that are measured together: as many as a cache holds"""
_MOST_WEIGHTS = 2**21
"""and as many weights at most, of all rows"""


def resampled(evidence: AttackEvidence, params: AttacksSettings) -> Array:
    """Return the measure of each resample; those of two models on the same rows are paired."""
    return resampled_together([evidence], params)[0]


def resampled_together(evidence: Sequence[AttackEvidence], params: AttacksSettings) -> list[Array]:
    """Return, for each piece of evidence about the same rows, the measure of each resample."""
    units, at_once = evidence[0].unit_of_row, max(1, min(_AT_ONCE, _MOST_WEIGHTS // len(evidence[0].rows)))
    drawn, values = _drawn(evidence[0].units, params.resamples, params.seed), []
    for start in range(0, params.resamples, at_once):
        weights = drawn[start : start + at_once, units].astype(np.float64)
        values.append([piece.statistic(piece.rows, weights) for piece in evidence])
    return [np.concatenate(parts) for parts in zip(*values, strict=True)]


@lru_cache(maxsize=2)
def _drawn(groups: int, resamples: int, seed: int) -> Array:
    """Return how often each group is drawn (resamples × groups)."""
    # The same stream whatever the evidence: two pieces about the same rows get the same weights.
    draw, shares = stream(seed, "attacks", "bootstrap"), np.full(groups, 1 / groups)
    sizes = (min(_AT_ONCE, resamples - start) for start in range(0, resamples, _AT_ONCE))
    return np.concatenate([draw.multinomial(groups, shares, size=size).astype(np.uint16) for size in sizes])


def measure_interval(evidence: AttackEvidence, values: Array, params: AttacksSettings) -> Interval:
    """Return a measure with its interval, from its resampled `values`."""
    tail = (1 - params.confidence) / 2
    low, high = _spread(evidence.value, values, evidence, tail)
    if low == high:
        low, high = (evidence.value + sign * unseen(evidence, None, tail) for sign in (-1, 1))
    least, most = evidence.limits
    return Interval(value=evidence.value, low=max(low, least), high=min(high, most))


def difference_interval(
    one: AttackEvidence, other: AttackEvidence, values: Array, judged: int, params: AttacksSettings
) -> Interval:
    """Return `one` − `other` with its interval, from resampled `values`, corrected for `judged` measures together."""
    value, tail = one.value - other.value, (1 - params.confidence) / (2 * max(judged, 1))
    low, high = resampled_bounds(value, values, one, judged, params)
    unlike = (one.rows != other.rows).any(1)
    if low == high:  # every row says the same, be it 0 or not
        rare = unseen(one, None, tail)
        low, high = value - rare, value + rare
    elif (differing := _count(one.unit_of_row[unlike])) < _FEWEST_UNLIKE and 2 * differing < one.units:
        most = max(unseen(one, unlike, tail), abs(value))
        low, high = -most, most
    widest = _range(one)
    return Interval(value=value, low=max(low, -widest), high=min(high, widest))


def resampled_bounds(
    value: float, values: Array, evidence: AttackEvidence, judged: int, params: AttacksSettings
) -> tuple[float, float]:
    """Return the bounds of a value from resampled ones alone, corrected for `judged` measures together."""
    alpha = 1 - params.confidence
    low, high = _spread(value, values, evidence, alpha / 2)
    stretch = _quantile_ratio(alpha / (2 * max(judged, 1)), alpha / 2, evidence.units)
    return value + stretch * (low - value), value + stretch * (high - value)


def detectable(noise: Array, width: float, threshold: float, power: float) -> float:
    """Return the smallest effect that is found with a probability; infinity if no resample has the measure.

    Args:
        noise: How far each resample lies from the measured value.
        width: From the measured value to the bound of its interval that decides.
        threshold: What the bound must exceed.
        power: The probability.

    """
    known = noise[np.isfinite(noise)]
    return threshold + width - min(0.0, float(np.quantile(known, 1 - power))) if len(known) else np.inf


def unseen(evidence: AttackEvidence, unlike: Array | None, tail: float) -> float:
    """Return how far the measure could move by rows that are as rare as the `unlike` ones (None: not one was seen).

    Args:
        evidence: The measure, and the rows that were seen.
        unlike: Which of them are unlike.
        tail: Probability that the bound does not hold.

    """
    names, unlike = evidence.unit_of_row, np.zeros(len(evidence.rows), bool) if unlike is None else unlike
    weight = evidence.class_weight
    kinds = [np.ones(len(names), bool)] if weight is None else [evidence.rows[:, 0] == c for c in _classes(evidence)]
    shares = [
        _largest_share(_count(names[kind & unlike]), _count(names[kind]), 1 - tail / len(kinds)) for kind in kinds
    ]
    return min(sum(shares) * (weight or 1.0), 1.0) * (_range(evidence) if np.isfinite(_range(evidence)) else 1.0)


def _classes(evidence: AttackEvidence) -> Array:
    return np.unique(evidence.rows[:, 0])


def _count(names: Array) -> int:
    return len(np.unique(names))


def _range(evidence: AttackEvidence) -> float:
    return evidence.limits[1] - evidence.limits[0]


@lru_cache
def _quantile_ratio(tail: float, resampled_tail: float, count: int) -> float:
    """Return by how much an interval from resampled quantiles is stretched to reach another tail of Student's t."""
    return float(t.ppf(1 - tail, max(count - 1, 1)) / norm.ppf(1 - resampled_tail))


@lru_cache
def _largest_share(some: int, of: int, confidence: float) -> float:
    return float(proportion_bounds(some, of, confidence)[1])


def _spread(value: float, values: Array, evidence: AttackEvidence, tail: float) -> tuple[float, float]:
    """Return the quantiles of resampled `values`, widened around the measure."""
    widen = np.sqrt(evidence.units / max(evidence.units - 1, 1))
    # A resample may lack a class altogether; it is left out.
    low, high = np.nanquantile(values, [tail, 1 - tail]) if np.isfinite(values).any() else (value, value)
    return min(value + float(low - value) * widen, value), max(value + float(high - value) * widen, value)


def mean(rows: Array, weights: Array) -> Array:
    """Return the mean of the first column."""
    return _ratio(weights @ rows[:, 0], weights.sum(1))


def accuracy(rows: Array, weights: Array) -> Array:
    """Return the share of hits; columns: truth, guess."""
    return _ratio(weights @ (rows[:, 0] == rows[:, 1]), weights.sum(1))


def balanced_accuracy(rows: Array, weights: Array) -> Array:
    """Return the mean of the shares of hits among the rows of each class, ½ by any constant guess; truth, guess."""
    return balanced_hits(np.column_stack([rows[:, 0], rows[:, 0] == rows[:, 1]]), weights)


def balanced_hits(rows: Array, weights: Array) -> Array:
    """Return the mean of the hits among the rows of each class; columns: truth (1, or at most 0), share of hits."""
    truth, hits = rows[:, 0] > 0, rows[:, 1]
    positive, negative = (_ratio(weights @ (hits * kind), weights @ kind) for kind in (truth, ~truth))
    return (positive + negative) / 2


def r_squared(rows: Array, weights: Array) -> Array:
    """Return R² = 1 − Σ error / Σ error of the mean; columns: squared error, squared error of guessing the mean."""
    return 1 - _ratio(weights @ rows[:, 0], weights @ rows[:, 1])


def cosine(rows: Array, weights: Array) -> Array:
    """Return the mean of Σ ab / √(Σ a² Σ b²) over several pairs, 0 where one has no length.

    Columns: ab of each pair, a² of each, b² of each.
    """
    products, first, second = np.split(weights @ rows, 3, axis=1)
    scale = np.sqrt(first * second)
    cosines: Array = np.divide(products, scale, out=np.zeros_like(scale), where=scale > _TINY).mean(1)
    return cosines


def auc(rows: Array, weights: Array) -> Array:
    """Return the probability that a positive row scores above a negative one, ties ½; columns: truth, score."""
    truth, score = rows[:, 0] > 0, rows[:, 1]
    order = np.argsort(score[~truth], kind="stable")
    positive, negative = weights[:, truth], weights[:, np.flatnonzero(~truth)[order]]
    reached = np.zeros((len(weights), len(order) + 1))
    np.cumsum(negative, axis=1, out=reached[:, 1:])
    first, last = (np.searchsorted(score[~truth][order], score[truth], side) for side in ("left", "right"))
    below = np.take(reached, first, axis=1)
    if (first != last).any():
        below = (below + np.take(reached, last, axis=1)) / 2
    return _ratio(np.einsum("bp,bp->b", positive, below), positive.sum(1) * reached[:, -1])


def tpr_at_fpr(rows: Array, weights: Array, fpr: float = 0.01) -> Array:
    """Return the largest share of positives found with at most `fpr` false alarms; columns: truth, score."""
    truth, score = rows[:, 0] > 0, -rows[:, 1]
    positive, negative = (np.flatnonzero(kind)[np.argsort(score[kind], kind="stable")] for kind in (truth, ~truth))
    alarms = np.cumsum(weights[:, negative], axis=1)
    counts = np.zeros((len(weights), len(positive) + 1))
    np.cumsum(weights[:, positive], axis=1, out=counts[:, 1:])
    # A score counts as long as it lies above that of the first negative which is one too many.
    above = np.append(np.searchsorted(score[positive], score[negative]), len(positive))
    allowed = (alarms <= fpr * alarms[:, -1:] + 1e-9).sum(1)
    return _ratio(np.take_along_axis(counts, above[allowed][:, None], axis=1)[:, 0], counts[:, -1])


def _ratio(above: Array, below: Array) -> Array:
    """Return above / below, NaN where there is nothing to divide by."""
    ratio: Array = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
    return ratio

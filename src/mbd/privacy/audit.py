"""A lower bound on ε from attacks: how much a released model has been *shown* to reveal.

An attacker scores candidates, some of which are members. If (ε, δ) holds, then for each decision

    TPR ≤ e^ε FPR + δ    and    TNR ≤ e^ε FNR + δ

so measured rates bound ε from below. Two bounds, each with the requested confidence:

    rates     ε ≥ ln((TPR − δ) / FPR), ln((TNR − δ) / FNR)   with Clopper–Pearson: TPR from below, FPR from above
    one run   with V of r guesses right among m candidates that were members by a fair coin (Steinke et al. 2023):
              P(V ≥ v) ≤ P(B ≥ v) + 2mδ · max_i P(v − i ≤ B < v) / i,   B ~ Binomial(r, e^ε / (1 + e^ε))

The decision is chosen on one half of the candidates and counted on the other, so the choice costs no confidence.
A bound of 0 means that nothing was shown, not that nothing is revealed.
"""

import math
from dataclasses import dataclass

import numpy as np

from mbd.randomness import stream
from mbd.tensors import Array

_THRESHOLDS = 64
_GUESSED = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_LARGEST = 50.0  # a larger ε is no limit in practice
_STEPS = 60


@dataclass(frozen=True)
class Bound:
    """ε is at least this, and by which of the two bounds."""

    epsilon: float
    by: str


def proportion_bounds(successes: Array | int, trials: Array | int, confidence: float) -> tuple[Array, Array]:
    """Return the Clopper–Pearson bounds of a proportion, each of which holds alone with the confidence."""
    from scipy.stats import beta  # noqa: PLC0415 -- slow to import, and part of an extra

    k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, beta.ppf(1 - confidence, k, n - k + 1), 0.0)
        high = np.where(k < n, beta.ppf(confidence, k + 1, n - k), 1.0)
    return low, high


def by_rates(
    true_positives: Array | int,
    positives: int,
    false_positives: Array | int,
    negatives: int,
    *,
    delta: float,
    confidence: float,
) -> Array:
    """Return the least ε that these counts are compatible with, for each of several decisions."""
    each = 1 - (1 - confidence) / 2  # both directions follow from the same two bounds
    tpr, _ = proportion_bounds(true_positives, positives, each)
    _, fpr = proportion_bounds(false_positives, negatives, each)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.stack([(tpr - delta) / fpr, (1 - fpr - delta) / (1 - tpr)])
        epsilons: Array = np.log(np.maximum(np.nan_to_num(ratios.max(0), nan=1.0, posinf=math.exp(_LARGEST)), 1.0))
    return epsilons


def by_guesses(right: int, guesses: int, candidates: int, *, delta: float, confidence: float) -> float:
    """Return the least ε that so many right guesses about members by a fair coin are compatible with."""
    if _chance_of(right, guesses, candidates, 0.0, delta) > 1 - confidence:
        return 0.0
    low, high = 0.0, _LARGEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _chance_of(right, guesses, candidates, middle, delta) <= 1 - confidence:
            low = middle
        else:
            high = middle
    return low


def lower_bound(scores: Array, members: Array, *, delta: float, confidence: float, seed: int) -> Bound:
    """Return the better of both bounds for scores that are higher for members."""
    each = 1 - (1 - confidence) / 2
    order = stream(seed, "audit", "halves").permutation(len(scores))
    choosing, counting = ((scores[part], np.asarray(members, bool)[part]) for part in np.array_split(order, 2))
    if any(min(m.sum(), (~m).sum()) == 0 for _, m in (choosing, counting)):
        return Bound(0.0, "rates")
    thresholds = np.quantile(choosing[0], np.linspace(0, 1, _THRESHOLDS))
    best = thresholds[np.argmax(_rate_bounds(*choosing, thresholds, delta, each))]
    bounds = [Bound(float(_rate_bounds(*counting, best[None], delta, each)[0]), "rates")]
    choosing, counting = (_balanced(*half, seed) for half in (choosing, counting))
    share = max(_GUESSED, key=lambda share: _guess_bound(*choosing, share, delta, each))
    bounds.append(Bound(_guess_bound(*counting, share, delta, each), "one run"))
    return max(bounds, key=lambda bound: bound.epsilon)


def _rate_bounds(scores: Array, members: Array, thresholds: Array, delta: float, confidence: float) -> Array:
    positive = scores[:, None] >= thresholds
    hits, alarms = positive[members].sum(0), positive[~members].sum(0)
    positives, negatives = int(members.sum()), int((~members).sum())
    return by_rates(hits, positives, alarms, negatives, delta=delta, confidence=confidence)


def _balanced(scores: Array, members: Array, seed: int) -> tuple[Array, Array]:
    """Return as many members as others, so that a fair coin could have decided about each."""
    draw = stream(seed, "audit", "balance")
    each = min(int(members.sum()), int((~members).sum()))
    kept = np.sort(np.concatenate([draw.permutation(np.flatnonzero(side))[:each] for side in (members, ~members)]))
    return scores[kept], members[kept]


def _guess_bound(scores: Array, members: Array, share: float, delta: float, confidence: float) -> float:
    """Return the bound when the highest scores are called members and as many of the lowest the others."""
    each = max(1, round(share * len(scores) / 2))
    order = np.argsort(scores, kind="stable")
    right = int(members[order[-each:]].sum() + (~members[order[:each]]).sum())
    return by_guesses(right, 2 * each, len(scores), delta=delta, confidence=confidence)


def _chance_of(right: int, guesses: int, candidates: int, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability of so many correct guesses if (ε, δ) holds."""
    from scipy.stats import binom  # noqa: PLC0415

    p = 1 / (1 + math.exp(-epsilon))
    below = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, p))
    surplus = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, float(binom.sf(right - 1, guesses, p)) + 2 * candidates * delta * surplus)

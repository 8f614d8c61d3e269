"""Which modalities a row has: fixed patterns, and masks with a given missing rate.

The missing rate η is the fraction of the n·M modality slots of a split that are absent. A mask of rate η has exactly
k = round(η·n·M) absent slots and keeps at least one modality in each row, so η ≤ (M−1)/M; it is drawn *uniformly*
from all such masks. What a row lacks of itself stays absent and counts towards η.

Drawing. A row that has a modalities can lose j < a of them in C(a, j) ways. So a mask is uniform if the numbers j_i of
lost modalities have P(j_1, …, j_n) ∝ Π_i C(a_i, j_i) over all with Σ_i j_i = l, the slots still to be lost, and each
row then loses a uniform set of this size. Independent j_i with P(j_i) ∝ C(a_i, j_i)·t^j_i have exactly this
distribution, given that their sum is l, for every t > 0: t appears only as t^l. How many rows lose 0, 1, 2, …
modalities is therefore drawn from multinomials until the sum is l; with t such that l is the expected sum this takes
about √(2π·Var) tries (some hundred at n = 5,000), and many are drawn at once.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

import numpy as np

from mbd.errors import UsageError
from mbd.randomness import stream
from mbd.tensors import Array

Mask = dict[str, Array]
MANY_MODALITIES = 6
"""with more of them there are too many sets to go through each"""
_TRIES_AT_ONCE = 256


def fixed_patterns(modalities: Sequence[str]) -> list[tuple[str, ...]]:
    """Return every non-empty set of modalities, smallest first, each in the order of `modalities`.

    Of more than six modalities only each alone, all but one, and all: 2n + 1 sets instead of 2ⁿ − 1.
    """
    count = len(modalities)
    sizes = range(1, count + 1) if count <= MANY_MODALITIES else (1, count - 1, count)
    return [pattern for size in sizes for pattern in combinations(modalities, size)]


def reachable_rates(available: Mapping[str, Array]) -> tuple[float, float]:
    """Return the lowest missing rate (what the rows lack of themselves) and the largest, (M−1)/M."""
    return float(1 - np.mean(list(available.values()))), 1 - 1 / len(available)


def missing_rate_mask(available: Mapping[str, Array], rate: float, seed: int) -> Mask:
    """Draw a mask with exactly round(rate·n·M) absent slots, uniform among those that leave something in each row.

    The mask is a part of `available`: which rows have what, each something. The draw depends on the seed, the rate, the
    names of the modalities (not on their order) and `available`; never on features or labels.
    """
    names = sorted(available)
    there = np.stack([np.asarray(available[modality], dtype=bool) for modality in names], axis=1)
    absent = round(rate * there.size)
    lost = absent - int((~there).sum())
    if not 0 <= lost <= there.sum() - len(there):
        low, high = reachable_rates(available)
        raise UsageError(
            f"a missing rate of {rate:g} cannot be reached with {len(names)} modalities",
            key="evaluation.missing_rates",
            value=rate,
            hint=f"each row keeps at least one modality, so give a rate from {low:.4f} to {high:.4f}",
        )
    rng = stream(seed, "availability", "missing rate", str(absent), *names)
    losses = _losses(rng, there.sum(axis=1), lost)
    # A row loses its modalities with the smallest of random keys: a uniform set of the given size.
    keys = np.where(there, rng.random(there.shape), np.inf)
    ranks = keys.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    kept = there & (ranks >= losses[:, None])
    return {modality: kept[:, names.index(modality)] for modality in available}


def _losses(rng: np.random.Generator, sizes: Array, lost: int) -> Array:
    """Draw how many modalities each row loses, from P(j) ∝ Π_i C(sizes_i, j_i) given that the sum is `lost`."""
    groups, rows_in = np.unique(sizes, return_counts=True)
    chances = _chances(groups, rows_in, lost)
    fits = np.zeros(0, dtype=np.int64)
    while not fits.size:
        # For each group of rows with equally many modalities: how many of them lose 0, 1, 2, …
        counts = [rng.multinomial(n, p, _TRIES_AT_ONCE) for n, p in zip(rows_in, chances, strict=True)]
        sums = np.sum([count @ np.arange(count.shape[1]) for count in counts], axis=0)
        fits = np.flatnonzero(sums == lost)
    losses = np.zeros(len(sizes), dtype=np.int64)
    for size, count in zip(groups, counts, strict=True):
        losses[sizes == size] = rng.permutation(np.repeat(np.arange(size), count[fits[0]]))
    return losses


def _chances(groups: Array, rows_in: Array, lost: int) -> list[Array]:
    """Return P(j) ∝ C(a, j)·t^j for each group's a, with t such that `lost` is the expected sum."""
    ways = [np.log([comb(a, j) for j in range(a)]) for a in groups.tolist()]

    def tilted(log_t: float) -> list[Array]:
        logs = [log + log_t * np.arange(len(log)) for log in ways]
        weights = [np.exp(log - log.max()) for log in logs]
        return [weight / weight.sum() for weight in weights]

    low, high = -50.0, 50.0
    for _ in range(30):  # any t is right; a near one is fast
        middle = (low + high) / 2
        expected = sum(n * (p @ np.arange(len(p))) for n, p in zip(rows_in, tilted(middle), strict=True))
        low, high = (middle, high) if expected < lost else (low, middle)
    return tilted((low + high) / 2)

"""Masks: the fixed patterns, and missing rates drawn uniformly among all masks that keep something in each row."""

from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import UsageError
from mbd.features.availability import (
    Mask,
    fixed_patterns,
    missing_rate_mask,
    reachable_rates,
)
from mbd.tensors import Array
from tests.refusals import refused

TRIPLE = ("text", "audio", "visual")


def bits(mask: Mask) -> Array:
    return np.stack(list(mask.values()), axis=1)


def all_of(n: int, names: Sequence[str]) -> Mask:
    return {name: np.ones(n, dtype=bool) for name in names}


def chi_square(counts: Array, expected: Array) -> float:
    return float((np.square(counts - expected) / expected).sum())


def far_out(cells: int) -> float:
    """The mean of chi-square for this many cells and four standard deviations."""
    return cells - 1 + 4 * float(np.sqrt(2 * (cells - 1)))


def test_fixed_patterns_are_every_set_smallest_first() -> None:
    assert fixed_patterns(TRIPLE) == [
        ("text",),
        ("audio",),
        ("visual",),
        ("text", "audio"),
        ("text", "visual"),
        ("audio", "visual"),
        TRIPLE,
    ]
    assert len(fixed_patterns("abcdef")) == 2**6 - 1


def test_of_many_modalities_each_alone_all_but_one_and_all_are_fixed_patterns() -> None:
    patterns = fixed_patterns("abcdefghijkl")
    assert [len(pattern) for pattern in patterns] == [1] * 12 + [11] * 12 + [12]


@given(st.integers(1, 60), st.integers(1, 6), st.floats(0, 1), st.integers(0, 2**63 - 1))
@settings(deadline=None, max_examples=200)
def test_exactly_the_rate_is_absent_and_each_row_keeps_something(n: int, m: int, share: float, seed: int) -> None:
    names = [f"m{i}" for i in range(m)]
    rate = share * reachable_rates(all_of(n, names))[1]
    mask = missing_rate_mask(all_of(n, names), rate, seed)
    assert list(mask) == names
    assert (~bits(mask)).sum() == round(rate * (n * m))
    assert bits(mask).any(axis=1).all()
    again = missing_rate_mask(all_of(n, names), rate, seed)
    assert bits(again).tobytes() == bits(mask).tobytes()


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(2, 5), st.floats(0, 1))
@settings(deadline=None, max_examples=150)
def test_what_a_row_lacks_stays_missing_and_counts_towards_the_rate(seed: int, n: int, m: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    there = rng.random((n, m)) < 0.6
    there[np.arange(n), rng.integers(0, m, n)] = True
    names = [f"m{i}" for i in range(m)]
    available = dict(zip(names, there.T, strict=True))
    low, high = reachable_rates(available)
    assert low == 1 - np.mean(list(available.values()))
    rate = low + share * (high - low)
    mask = missing_rate_mask(available, rate, seed)
    assert not (bits(mask) & ~there).any()
    assert (~bits(mask)).sum() == round(rate * (n * m))
    assert bits(mask).any(axis=1).all()


@pytest.mark.parametrize("modalities", [2, 3, 6])
def test_the_largest_rate_leaves_exactly_one_in_each_row(modalities: int) -> None:
    names = [f"m{i}" for i in range(modalities)]
    mask = missing_rate_mask(all_of(5000, names), (modalities - 1) / modalities, seed=0)
    assert (bits(mask).sum(axis=1) == 1).all()


@pytest.mark.parametrize("rate", [0.7, 1.0, -0.1])
def test_a_rate_that_cannot_be_is_a_usage_error_that_says_what_can(rate: float) -> None:
    with refused(UsageError, key="evaluation.missing_rates", value=rate) as caught:
        missing_rate_mask(all_of(686, TRIPLE), rate, seed=0)
    assert "from 0.0000 to 0.6667" in str(caught.value)


def test_a_rate_below_what_the_rows_lack_of_themselves_is_refused_too() -> None:
    available = {"text": np.array([True, True]), "audio": np.array([True, False])}
    with pytest.raises(UsageError, match=r"from 0\.2500 to 0\.5000"):
        missing_rate_mask(available, 0.0, 0)


def test_the_mask_depends_on_the_seed_and_the_rate_but_not_on_the_order_of_modalities() -> None:
    mask = missing_rate_mask(all_of(200, TRIPLE), 0.4, seed=1)
    turned = missing_rate_mask(all_of(200, TRIPLE[::-1]), 0.4, seed=1)
    assert list(turned) == list(TRIPLE[::-1])
    assert all((mask[m] == turned[m]).all() for m in TRIPLE)
    assert (bits(mask) != bits(missing_rate_mask(all_of(200, TRIPLE), 0.4, seed=2))).any()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.66])
def test_over_a_large_split_modalities_and_numbers_lost_have_their_exact_shares(rate: float) -> None:
    n = 30_000
    mask = bits(missing_rate_mask(all_of(n, TRIPLE), rate, seed=3))
    # Each modality is lost equally often; the sum is fixed, so the statistic is a little smaller than chi-square.
    lost = (~mask).sum(axis=0)
    assert chi_square(lost, np.full(3, lost.mean())) < far_out(3)
    # For a row of many, P(j lost) ∝ C(3, j)·t^j: the numbers of rows that lose 0, 1, 2 satisfy (N_1/3)² = N_0·N_2/3.
    none, one, two = np.bincount((~mask).sum(axis=1), minlength=3)
    assert one**2 / (none * two) == pytest.approx(3, rel=8 / np.sqrt(min(none, one, two)))
    # Within a number lost, each set is as likely as another.
    for size in (1, 2):
        sets = np.unique(mask[(~mask).sum(axis=1) == size], axis=0, return_counts=True)[1]
        assert len(sets) == 3
        assert chi_square(sets, np.full(3, sets.mean())) < far_out(3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("there", "absent"),
    [
        (np.ones((3, 2), dtype=bool), 2),
        (np.ones((2, 3), dtype=bool), 3),
        (np.ones((3, 3), dtype=bool), 5),
        (np.array([[True, True, True], [True, False, True], [False, False, True]]), 5),
    ],
)
def test_every_mask_of_a_small_case_is_equally_likely(there: Array, absent: int) -> None:
    n, m = there.shape
    names = [f"m{i}" for i in range(m)]
    every = np.array(list(product([False, True], repeat=n * m))).reshape(-1, n, m)
    allowed = [
        mask.tobytes()
        for mask in every
        if (~mask).sum() == absent and mask.any(axis=1).all() and not (mask & ~there).any()
    ]
    available = dict(zip(names, there.T, strict=True))
    draws = 25 * len(allowed)
    found = Counter(
        np.ascontiguousarray(bits(missing_rate_mask(available, absent / (n * m), seed))).tobytes()
        for seed in range(draws)
    )
    assert set(found) == set(allowed)
    counts = np.array([found[mask] for mask in allowed])
    assert chi_square(counts, np.full(len(allowed), 25.0)) < far_out(len(allowed))

"""Means weighted by overlap, against a loop that follows the formula word by word."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.features.sources.csd import overlap_means
from mbd.tensors import Array

TIMES = st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: (min(pair) / 4, max(pair) / 4))


def by_hand(targets: Array, intervals: Array, features: Array) -> tuple[Array, Array]:
    means, seconds = np.zeros((len(targets), features.shape[1])), np.zeros(len(targets))
    for i, (start, end) in enumerate(targets):
        for (a, b), x in zip(intervals, features, strict=True):
            overlap = max(0.0, min(end, b) - max(start, a))
            means[i] += overlap * x
            seconds[i] += overlap
        if seconds[i]:
            means[i] /= seconds[i]
    return means, seconds


@given(st.lists(TIMES, max_size=8), st.lists(TIMES, max_size=30), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=150)
def test_any_intervals_sorted_or_not_nested_or_not_follow_the_formula(
    targets: list[tuple[float, float]], intervals: list[tuple[float, float]], seed: int
) -> None:
    wanted, given_ = (np.array(times, dtype=np.float64).reshape(-1, 2) for times in (targets, intervals))
    features = np.random.default_rng(seed).standard_normal((len(given_), 3)).astype(np.float32)
    means, seconds = overlap_means(wanted, given_, features)
    expected, expected_seconds = by_hand(wanted, given_, features)
    np.testing.assert_allclose(means, expected, atol=1e-6)
    np.testing.assert_allclose(seconds, expected_seconds, atol=1e-12)


def test_a_frame_that_is_far_away_does_not_disturb_the_mean_even_if_it_is_huge() -> None:
    intervals = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
    features = np.array([[1e30], [0.25], [0.75]], dtype=np.float32)
    means, seconds = overlap_means(np.array([[1.5, 2.5]]), intervals, features)
    assert means.tolist() == [[0.5]]
    assert seconds.tolist() == [1.0]


def test_an_interval_that_ends_before_it_begins_has_no_weight() -> None:
    means, seconds = overlap_means(
        np.array([[0.0, 2.0], [2.0, 1.0]]), np.array([[1.0, 0.5], [0.0, 2.0]]), np.array([[9.0], [3.0]])
    )
    assert means.tolist() == [[3.0], [0.0]]
    assert seconds.tolist() == [2.0, 0.0]

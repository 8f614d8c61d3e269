"""Lower bounds on ε: against mechanisms whose ε is known, and by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mbd.privacy.audit import by_guesses, by_rates, lower_bound, proportion_bounds
from mbd.tensors import Array


def randomised_response(epsilon: float, n: int, seed: int) -> tuple[Array, Array]:
    """A fair coin for each candidate, reported truthfully with probability e^ε / (1 + e^ε): exactly ε."""
    rng = np.random.default_rng([seed, n])
    members = rng.random(n) < 0.5
    honest = rng.random(n) < 1 / (1 + math.exp(-epsilon))
    return np.where(honest, members, ~members).astype(float), members


def test_all_right_of_ten_by_hand() -> None:
    # 10 of 10 found and 0 of 10 false alarms: TPR ≥ 0.025^(1/10), FPR ≤ 1 − 0.025^(1/10).
    tpr = 0.025**0.1
    assert float(by_rates(10, 10, 0, 10, delta=0, confidence=0.95)) == pytest.approx(math.log(tpr / (1 - tpr)))


def test_all_guesses_right_by_hand() -> None:
    # P(all of 100 right) = p^100 ≤ 0.05 as long as p ≤ 0.05^(1/100).
    p = 0.05**0.01
    assert by_guesses(100, 100, 100, delta=0, confidence=0.95) == pytest.approx(math.log(p / (1 - p)), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_bound_holds_as_often_as_it_says(epsilon: float) -> None:
    found = [
        lower_bound(*randomised_response(epsilon, 400, seed), delta=1e-5, confidence=0.95, seed=seed).epsilon
        for seed in range(40)
    ]
    assert np.mean(np.array(found) > epsilon) <= 0.1


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_the_bound_comes_close_with_many_candidates(epsilon: float) -> None:
    scores, members = randomised_response(epsilon, 40_000, 0)
    found = lower_bound(scores, members, delta=1e-6, confidence=0.95, seed=0)
    assert 0.85 * epsilon < found.epsilon <= epsilon


def test_gaussian_scores_stay_below_what_the_mechanism_reveals() -> None:
    rng = np.random.default_rng(3)
    members = rng.random(4000) < 0.5
    found = lower_bound(members + rng.standard_normal(4000), members, delta=1e-5, confidence=0.95, seed=0)
    assert 0.5 < found.epsilon < 4.4  # one Gaussian release with μ = 1 has ε = 4.38 at δ = 1e-5


def test_nothing_to_compare_shows_nothing() -> None:
    assert lower_bound(np.zeros(40), np.ones(40, bool), delta=1e-5, confidence=0.95, seed=0).epsilon == 0
    assert lower_bound(np.zeros(40), np.arange(40) % 2 == 0, delta=1e-5, confidence=0.95, seed=0).epsilon == 0


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.data())
def test_bounds_of_a_proportion_are_those_of_scipy(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = proportion_bounds(successes, trials, 0.975)
    exact = stats.binomtest(successes, trials).proportion_ci(0.95, method="exact")
    assert (float(low), float(high)) == pytest.approx((exact.low, exact.high))


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 80), st.data())
def test_more_right_guesses_never_show_less(guesses: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, guesses - 1))
    few, more = (by_guesses(k, guesses, 2 * guesses, delta=1e-5, confidence=0.95) for k in (right, right + 1))
    assert 0 <= few <= more
    looser = by_guesses(right + 1, guesses, 2 * guesses, delta=1e-3, confidence=0.95)
    assert looser <= more

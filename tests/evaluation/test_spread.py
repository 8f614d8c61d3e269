"""Seeds and pairs, against numpy and scipy, and where neither has an answer."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from mbd.evaluation.results import Comparison, paired_t_test, spread

VALUES = st.floats(-100, 100).map(lambda x: round(x, 3))


def test_mean_and_sample_deviation() -> None:
    found = spread([70.0, 72.0, 74.0])
    assert (found.mean, found.deviation, found.seeds) == (72.0, 2.0, 3)


def test_one_seed_has_no_deviation() -> None:
    assert spread([70.0]).deviation is None


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=8))
def test_the_t_test_is_scipys(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = np.array(pairs).T.tolist()
    assume(np.ptp(np.subtract(ours, theirs)) > 1e-6)
    expected = ttest_rel(ours, theirs)
    found = paired_t_test(ours, theirs)
    assert found.t == pytest.approx(expected.statistic)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.difference == pytest.approx(np.mean(ours) - np.mean(theirs), abs=1e-9)
    assert found.pairs == len(pairs)


def test_one_pair_shows_a_difference_and_no_p() -> None:
    assert paired_t_test([3.0], [1.0]) == Comparison(2.0, None, None, 1)


def test_equal_methods_have_p_one() -> None:
    assert paired_t_test([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == Comparison(0.0, 0.0, 1.0, 3)


def test_seeds_that_all_differ_by_the_same_claim_no_p() -> None:
    assert paired_t_test([1.5, 2.5, 3.5], [1.0, 2.0, 3.0]) == Comparison(0.5, None, None, 3)


def test_values_that_are_no_pairs_are_an_error() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        paired_t_test([1.0, 2.0], [1.0])

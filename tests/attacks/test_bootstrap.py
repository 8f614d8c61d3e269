"""Statistics against scikit-learn on rows drawn one by one, and intervals that cover what they should."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score, roc_curve

from mbd.attacks import bootstrap
from mbd.attacks.attack import AttackEvidence, Statistic
from mbd.params import AttacksSettings
from mbd.tensors import Array
from tests.attacks.models import difference, interval


def evidence(rows: Array, statistic: Statistic = bootstrap.mean, groups: Array | None = None) -> AttackEvidence:
    return AttackEvidence("whitebox", "something", 0.0, rows, statistic, groups)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(4, 30))
def test_a_weight_is_a_row_drawn_so_often(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    truth, score = rng.permutation(np.arange(n) % 2), np.round(rng.standard_normal(n), 1)
    weights = rng.integers(1, 4, (3, n))
    rows = np.column_stack([truth, score])
    for weight, area, hits, found in zip(
        weights,
        bootstrap.auc(rows, weights),
        bootstrap.balanced_accuracy(np.column_stack([truth, score > 0]), weights),
        bootstrap.tpr_at_fpr(rows, weights, fpr=0.2),
        strict=True,
    ):
        drawn = np.repeat(np.arange(n), weight)
        assert area == pytest.approx(roc_auc_score(truth[drawn], score[drawn]))
        assert hits == pytest.approx(balanced_accuracy_score(truth[drawn], score[drawn] > 0))
        alarms, caught, _ = roc_curve(truth[drawn], score[drawn], drop_intermediate=False)
        assert found == pytest.approx(caught[alarms <= 0.2 + 1e-9].max())


def test_r_squared_of_several_columns_is_that_of_all_together() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((50, 3))
    truth -= truth.mean(0)
    guess = 0.5 * truth + 0.1 * rng.standard_normal(truth.shape)
    rows = np.column_stack([((guess - truth) ** 2).sum(1), (truth**2).sum(1)])
    expected = r2_score(truth, guess, multioutput="variance_weighted")
    assert bootstrap.r_squared(rows, np.ones((1, 50)))[0] == pytest.approx(expected)


def test_shares_of_hits() -> None:
    rows = np.array([[1, 1], [1, 1], [1, 1], [0, 1]])
    ones = np.ones((1, 4))
    assert bootstrap.accuracy(rows, ones)[0] == 0.75
    assert bootstrap.balanced_accuracy(rows, ones)[0] == 0.5
    assert bootstrap.mean(rows, ones)[0] == 0.75


def test_rows_of_a_group_are_drawn_together() -> None:
    weights = bootstrap.resample_weights(np.array(["a", "b", "a", "c"]), 50, np.random.default_rng(0))
    assert (weights[:, 0] == weights[:, 2]).all()
    assert (weights[:, [0, 1, 3]].sum(1) == 3).all()
    assert (bootstrap.resample_weights(4, 50, np.random.default_rng(0)).sum(1) == 4).all()


def test_rows_that_are_alike_are_worth_no_more_than_one() -> None:
    values = np.repeat(np.random.default_rng(0).standard_normal(20), 10)[:, None]
    alone = interval(evidence(values), AttacksSettings())
    together = interval(evidence(values, groups=np.repeat(np.arange(20), 10)), AttacksSettings())
    assert (together.high - together.low) > 2.5 * (alone.high - alone.low)


@pytest.mark.parametrize("kind", ["mean", "auc", "r_squared"])
def test_intervals_of_noise_cover_the_truth_in_about_95_of_100(kind: str) -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        noise = rng.standard_normal((80, 2))
        truth = (noise[:, 0] > 0) if kind == "auc" else noise[:, 0]
        rows = np.column_stack([truth, noise[:, 1] ** 2 if kind == "r_squared" else noise[:, 1]])
        if kind == "r_squared":
            rows[:, 0] = rng.standard_normal(80) ** 2  # an error as large as that of the mean: R² = 0
        found = interval(evidence(rows, getattr(bootstrap, kind)), AttacksSettings(resamples=400))
        covered += found.low <= (0.5 if kind == "auc" else 0.0) <= found.high
    assert 180 <= covered <= 198


def test_a_difference_is_taken_on_the_same_rows() -> None:
    rng = np.random.default_rng(2)
    hard = 10 * rng.standard_normal((60, 1))
    one, other = evidence(hard + 1 + 0.1 * rng.standard_normal((60, 1))), evidence(hard)
    found = difference(one, other, AttacksSettings())
    assert found.value == pytest.approx(1, abs=0.1)
    assert 0.9 < found.low < found.high < 1.1
    assert difference(one, one, AttacksSettings()).model_dump() == {"value": 0, "low": 0, "high": 0}


def test_the_same_evidence_has_the_same_interval_and_a_class_that_is_not_drawn_does_no_harm() -> None:
    rows = np.array([[1, 0.5], [0, 0.1], [0, 0.2]])
    found = interval(evidence(rows, bootstrap.auc), AttacksSettings())
    assert found == interval(evidence(rows, bootstrap.auc), AttacksSettings())
    assert (found.value, found.low, found.high) == (1, 1, 1)

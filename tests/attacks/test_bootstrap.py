"""Statistics against scikit-learn on rows drawn one by one, and intervals that cover what they should."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score, roc_curve

from mbd.attacks import bootstrap
from mbd.attacks.attack import AttackEvidence, Statistic
from mbd.params.deletion import AttacksSettings
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
    twice = evidence(np.zeros((20, 1)), unlike_in_a_group, groups=np.repeat(np.arange(10), 2))
    assert not bootstrap.resampled(twice, AttacksSettings()).any()
    assert bootstrap.resampled(evidence(np.zeros((20, 1)), unlike_in_a_group), AttacksSettings()).any()
    assert (bootstrap.resampled(evidence(np.zeros((20, 1)), drawn), AttacksSettings()) == 20).all()


def unlike_in_a_group(_: Array, weights: Array) -> Array:
    return np.asarray(np.abs(weights[:, ::2] - weights[:, 1::2]).sum(1))


def drawn(_: Array, weights: Array) -> Array:
    return np.asarray(weights.sum(1))


def test_many_rows_are_weighted_by_few_resamples_at_a_time_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = evidence(np.arange(60.0)[:, None], groups=np.arange(60) // 3)
    together = bootstrap.resampled(numbers, AttacksSettings())
    monkeypatch.setattr(bootstrap, "_MOST_WEIGHTS", 7 * 60)
    assert (bootstrap.resampled(numbers, AttacksSettings()) == together).all()


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


def pairs(right: Array, groups: Array | None = None) -> AttackEvidence:
    """Evidence of guesses at a coin that always falls on 1."""
    rows = np.column_stack([np.ones(len(right)), right]).astype(float)
    return AttackEvidence("whitebox", "accuracy", 0.5, rows, bootstrap.accuracy, groups, limits=(0, 1))


@pytest.mark.parametrize("n", [20, 300, 3000])
def test_answers_that_never_differ_leave_the_rule_of_three(n: int) -> None:
    same = pairs(np.random.default_rng(0).random(n) < 0.7)
    found = difference(same, same, AttacksSettings())
    assert (found.value, found.low) == (0, -found.high)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / n))  # 3.7/n: each end holds at 97.5 %
    grouped = pairs(same.rows[:, 1] > 0, groups=np.arange(n) // 2)
    assert difference(grouped, grouped, AttacksSettings()).high > 1.7 * found.high


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.003, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("n", [60, 300])
def test_differences_of_rare_answers_are_covered_in_at_least_95_of_100(n: int, share: float) -> None:
    """Models that differ in a share of all rows, one of them always right there: the truth is that share."""
    rng, covered = np.random.default_rng([n, int(1000 * share)]), 0
    for _ in range(300):
        unlike, other = rng.random(n) < share, rng.random(n) < 0.6
        one = np.where(unlike, True, other)
        found = difference(pairs(one), pairs(np.where(unlike, False, other)), AttacksSettings(resamples=200))
        covered += found.low <= share <= found.high
    assert covered >= 280  # 285 are expected of an exact 95 %


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_differences_of_balanced_accuracies_and_of_areas_are_covered_where_few_rows_differ(share: float) -> None:
    rng, covered = np.random.default_rng(5), {"balanced": 0, "auc": 0}
    for _ in range(200):
        truth = rng.random(200) < 0.3
        hit, unlike = rng.random(200) < 0.6, rng.random(200) < share
        guess = np.where(hit, truth, ~truth)
        rows = [np.column_stack([truth, np.where(unlike, answer, guess)]).astype(float) for answer in (truth, ~truth)]
        for name, statistic, weight in (("balanced", bootstrap.balanced_accuracy, 0.5), ("auc", bootstrap.auc, 1.0)):
            one, other = (
                AttackEvidence("a", "m", 0.5, part, statistic, limits=(0, 1), class_weight=weight) for part in rows
            )
            found = difference(one, other, AttacksSettings(resamples=200))
            covered[name] += found.low <= share <= found.high  # of one guess, AUC is the balanced accuracy
    assert min(covered.values()) >= 186


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.integers(2, 60), st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]))
def test_no_interval_leaves_the_values_that_a_measure_can_have(seed: int, n: int, right: float) -> None:
    rng = np.random.default_rng(seed)
    one, other = (pairs(rng.random(n) < right) for _ in range(2))
    params = AttacksSettings(resamples=50)
    for evidence in (one, other):
        found = interval(evidence, params)
        assert 0 <= found.low <= found.value <= found.high <= 1
        assert found.low < found.high
    gap = difference(one, other, params)
    assert -1 <= gap.low <= gap.value <= gap.high <= 1
    assert gap.low < gap.high


def test_more_rows_that_differ_never_narrow_the_bound_of_few() -> None:
    other = np.arange(400) % 2 == 0
    bounds = []
    for k in range(12):
        one = other.copy()
        one[: 2 * k : 2] = False
        bounds.append(-difference(pairs(one), pairs(other), AttacksSettings()).low)
    assert bounds[:10] == sorted(bounds[:10])
    assert bounds[10] == pytest.approx(bounds[9], rel=0.35)  # from here on resampled


def test_the_same_evidence_has_the_same_interval_and_a_class_that_is_not_drawn_does_no_harm() -> None:
    rows = np.array([[1, 0.5], [0, 0.1], [0, 0.2]])
    found = interval(evidence(rows, bootstrap.auc), AttacksSettings())
    assert found == interval(evidence(rows, bootstrap.auc), AttacksSettings())
    assert found.low < found.value == 1

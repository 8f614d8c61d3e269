"""Metrics: cases worked out by hand, the field's traps by name, and scikit-learn on random inputs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, recall_score

from mbd.evaluation.metrics import (
    calibration_error,
    classification_metrics,
    pearson,
    regression_metrics,
    task_metrics,
    weighted_f1,
)
from mbd.tensors import Array


def test_regression_worked_out_by_hand() -> None:
    truth = np.array([-2.0, -1.0, 0.0, 1.0, 3.0])
    prediction = np.array([-1.6, 0.4, 0.2, 0.9, 4.0])
    found = regression_metrics(truth, prediction)
    # Signs: − + + + + against − − + + +, one of five wrong; without the zero one of four.
    assert found["acc2"] == 80.0
    assert found["acc2_nonzero"] == 75.0
    # F1 of the negatives 2·1/(2+1), of the others 2·3/(3+4), weighted 2 to 3.
    assert found["f1"] == pytest.approx(100 * (2 * 2 / 3 + 3 * 6 / 7) / 5)
    assert found["f1_nonzero"] == pytest.approx(100 * (2 * 2 / 3 + 2 * 4 / 5) / 4)
    # Rounded within ±3: −2 0 0 1 3 against −2 −1 0 1 3; within ±2 the same.
    assert found["acc7"] == 80.0
    assert found["acc5"] == 80.0
    assert found["mae"] == pytest.approx((0.4 + 1.4 + 0.2 + 0.1 + 1.0) / 5)
    assert found["corr"] == pytest.approx(np.corrcoef(truth, prediction)[0, 1])


def test_classification_worked_out_by_hand() -> None:
    truth = np.array([0, 0, 0, 1, 2, 2])
    prediction = np.array([0, 0, 1, 1, 1, 2])
    found = classification_metrics(truth, prediction)
    assert found["wa"] == pytest.approx(100 * 4 / 6)
    assert found["ua"] == pytest.approx(100 * (2 / 3 + 1 + 1 / 2) / 3)
    assert found["f1"] == pytest.approx(100 * (3 * 4 / 5 + 1 * 2 / 4 + 2 * 2 / 3) / 6)


def test_calibration_error_worked_out_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.45, 0.55], [0.45, 0.55]])
    truth = np.array([0, 1, 1, 1])
    # Two rows at .9 of which one is right, two at .55 that both are.
    assert calibration_error(truth, probabilities) == pytest.approx(100 * (0.4 + 0.45) / 2)
    assert task_metrics("classification", truth, probabilities)["ece"] == calibration_error(truth, probabilities)


def test_probabilities_that_are_right_as_often_as_they_say_have_no_calibration_error() -> None:
    draw = np.random.default_rng(0)
    probabilities = draw.dirichlet([1, 1, 1], 200_000)
    truth = (draw.random((len(probabilities), 1)) > probabilities.cumsum(1)).sum(1)
    assert calibration_error(truth, probabilities) < 0.5
    assert calibration_error(truth, probabilities**3) > 10


def test_scores_of_ridge_have_a_calibration_error_too() -> None:
    scores = np.array([[1.2, -0.2], [-0.1, -0.3]])
    assert calibration_error(np.array([0, 0]), scores) == pytest.approx(25)


class TestHalfToEven:
    def test_a_half_is_rounded_to_the_even_neighbour_on_both_sides(self) -> None:
        halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
        even = np.array([-2.0, -2.0, 0.0, 0.0, 2.0, 2.0])
        assert regression_metrics(halves, even)["acc7"] == 100.0
        away_from_zero = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
        assert regression_metrics(halves, away_from_zero)["acc7"] == pytest.approx(100 * 2 / 6)

    def test_a_label_of_two_and_a_half_is_the_class_two_also_when_clipped_to_two(self) -> None:
        assert regression_metrics(np.array([2.5]), np.array([2.0]))["acc5"] == 100.0


class TestClipping:
    def test_seven_classes_are_clipped_to_three_and_five_to_two(self) -> None:
        found = regression_metrics(np.array([3.0, 2.0]), np.array([9.0, 3.0]))
        assert (found["acc7"], found["acc5"]) == (50.0, 100.0)

    def test_mae_and_r_are_taken_before_clipping(self) -> None:
        truth, prediction = np.array([-3.0, 0.0, 3.0]), np.array([-9.0, 0.0, 3.0])
        found = regression_metrics(truth, prediction)
        assert found["mae"] == 2.0
        assert found["corr"] == pytest.approx(np.corrcoef(truth, prediction)[0, 1])
        assert found["corr"] < 0.999


class TestZeroLabels:
    def test_a_zero_label_is_not_negative_and_is_left_out_of_the_other_way(self) -> None:
        found = regression_metrics(np.array([0.0, 0.0, -1.0, 1.0]), np.array([-0.1, 0.1, -1.0, 1.0]))
        assert found["acc2"] == 75.0
        assert found["acc2_nonzero"] == 100.0

    def test_a_prediction_of_zero_is_non_negative_and_yet_not_positive(self) -> None:
        found = regression_metrics(np.array([1.0, -1.0]), np.array([0.0, 0.0]))
        assert found["acc2"] == 50.0
        assert found["acc2_nonzero"] == 50.0
        positive = regression_metrics(np.array([1.0]), np.array([0.0]))
        assert (positive["acc2"], positive["acc2_nonzero"]) == (100.0, 0.0)

    def test_only_zero_labels_leave_nothing_to_count(self) -> None:
        found = regression_metrics(np.zeros(3), np.ones(3))
        assert (found["acc2_nonzero"], found["f1_nonzero"]) == (0.0, 0.0)


def test_f1_is_weighted_by_the_truth_not_by_the_prediction() -> None:
    truth, prediction = np.array([1, 1, 1, 0]), np.array([1, 0, 0, 0])
    assert weighted_f1(truth, prediction) == pytest.approx(100 * (3 * 0.5 + 1 * 0.5) / 4)
    truth, prediction = np.array([1, 1, 1, 1]), np.array([1, 1, 1, 0])
    assert weighted_f1(truth, prediction) != pytest.approx(weighted_f1(prediction, truth))


def test_a_class_that_never_occurs_has_no_recall_to_average() -> None:
    assert classification_metrics(np.array([0, 0, 1]), np.array([0, 2, 1]))["ua"] == 75.0


@pytest.mark.parametrize("truth", [np.ones(4), np.arange(4.0)])
def test_r_with_a_constant_is_zero(truth: Array) -> None:
    assert pearson(truth, np.full(4, 2.0)) == 0.0


def test_the_task_says_how_outputs_are_read() -> None:
    probabilities = np.array([[0.2, 0.8], [0.9, 0.1]])
    assert task_metrics("classification", np.array([1, 0]), probabilities)["wa"] == 100.0
    assert task_metrics("regression", np.array([1.0, -1.0]), np.array([2.0, 2.0]))["acc2"] == 50.0


LABELS = st.integers(-30, 30).map(lambda tenths: tenths / 10)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(LABELS, st.integers(-40, 40).map(lambda tenths: tenths / 10)), min_size=1, max_size=40))
def test_regression_agrees_with_scikit_learn(pairs: list[tuple[float, float]]) -> None:
    truth, prediction = np.array(pairs).T
    found = regression_metrics(truth, prediction)
    _same_as_sklearn(truth >= 0, prediction >= 0, found["acc2"], found["f1"])
    kept = truth != 0
    if kept.any():
        _same_as_sklearn(truth[kept] > 0, prediction[kept] > 0, found["acc2_nonzero"], found["f1_nonzero"])
    for name, bound in (("acc7", 3), ("acc5", 2)):
        classes = [np.rint(np.clip(x, -bound, bound)) for x in (truth, prediction)]
        assert found[name] == pytest.approx(100 * accuracy_score(*classes))
    assert found["mae"] == pytest.approx(mean_absolute_error(truth, prediction))
    if np.ptp(truth) > 0 and np.ptp(prediction) > 0:
        assert found["corr"] == pytest.approx(np.corrcoef(truth, prediction)[0, 1], abs=1e-9)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_classification_agrees_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    truth, prediction = np.array(pairs).T
    found = classification_metrics(truth, prediction)
    _same_as_sklearn(truth, prediction, found["wa"], found["f1"])
    recalls: Any = recall_score(truth, prediction, labels=np.unique(truth), average="macro", zero_division=0)
    assert found["ua"] == pytest.approx(100 * recalls)


def _same_as_sklearn(truth: Array, prediction: Array, accuracy: float, f1: float) -> None:
    assert accuracy == pytest.approx(100 * accuracy_score(truth, prediction))
    assert f1 == pytest.approx(100 * f1_score(truth, prediction, average="weighted", zero_division=0))

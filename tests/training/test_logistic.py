"""Classes: the logistic member, calibration, and the discount of the prior."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from mbd import blocks
from mbd.blocks import Columns
from mbd.evaluation.metrics import calibration_error, classification_metrics
from mbd.model.coordinates import cross_entropy, softmax
from mbd.tensors import Array
from mbd.training.lattice import classes
from mbd.training.lattice.classes import calibrate, train_logistic

BLOCKS = (3, 5)
STRENGTHS = (-1.0, -1.0)


def rows_of(seed: int, n: int = 240, classes: int = 4, skew: float = 1.0) -> tuple[Array, Array, Array]:
    """Features whose first columns tell the class, the first class being the most frequent; targets; folds."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal((n, sum(BLOCKS)))
    scores = x[:, :classes] - skew * np.log1p(np.arange(classes)) + draw.gumbel(size=(n, classes))
    return x, np.eye(classes)[scores.argmax(1)], draw.integers(0, 5, n)


def in_columns(x: Array) -> Columns:
    return Columns((x[:, : BLOCKS[0]], x[:, BLOCKS[0] :]), np.arange(len(x)))


@pytest.mark.parametrize("classes", [1, 2, 4])
def test_it_learns_from_the_other_folds(classes: int) -> None:
    x, targets, folds = rows_of(0, n=900, classes=classes)
    (weights, offset), logits = train_logistic(in_columns(x), targets, folds, STRENGTHS)
    truth = targets.argmax(1)
    frequency = np.log(targets.mean(0)) + np.zeros_like(targets)
    assert cross_entropy(x @ weights + offset, truth) <= cross_entropy(logits, truth)
    assert cross_entropy(logits, truth) <= cross_entropy(frequency, truth) - 0.1 * (classes > 1)


def test_logits_out_of_fold_do_not_depend_on_the_classes_of_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_FACTORS", np.ones(1))
    x, targets, folds = rows_of(1)
    own = folds == 2
    changed = np.where(own[:, None], np.roll(targets, 1, axis=1), targets)
    before, after = (train_logistic(in_columns(x), y, folds, STRENGTHS)[1] for y in (targets, changed))
    assert before[own].tobytes() == after[own].tobytes()
    assert before[~own].tobytes() != after[~own].tobytes()


def test_a_strength_belongs_to_its_block() -> None:
    x, targets, folds = rows_of(1)
    weights, _ = train_logistic(in_columns(x), targets, folds, (4.0, -2.0))[0]
    assert np.abs(weights[: BLOCKS[0]]).max() < 1e-2 < np.abs(weights[BLOCKS[0] :]).max()


def test_the_order_of_rows_hardly_matters() -> None:
    x, targets, folds = rows_of(2)
    order = np.random.default_rng(2).permutation(len(x))
    one, other = (train_logistic(in_columns(x[o]), targets[o], folds[o], STRENGTHS)[1] for o in (slice(None), order))
    np.testing.assert_allclose(softmax(one[order]), softmax(other), atol=1e-3)


def test_the_fit_is_that_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classes, "_STEPS", 60)
    monkeypatch.setattr(classes, "_FACTORS", np.ones(1))
    x, targets, folds = rows_of(0)
    (weights, offset), _ = train_logistic(in_columns(x), targets, folds, (-1.5, -1.5))
    expected = LogisticRegression(C=10**1.5 / len(x), tol=1e-9, max_iter=5000).fit(x, targets.argmax(1))
    np.testing.assert_allclose(softmax(x @ weights + offset), expected.predict_proba(x), atol=1e-3)


def test_rows_that_are_read_in_blocks_are_fitted_to_in_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x, targets, folds = rows_of(3)
    in_memory = train_logistic(in_columns(x), targets, folds, STRENGTHS)[1]
    monkeypatch.setattr(classes, "_IN_MEMORY", 0)
    monkeypatch.setattr(blocks, "_NUMBERS", 1)
    monkeypatch.setattr(blocks, "_FEWEST_ROWS", 50)
    np.testing.assert_allclose(train_logistic(in_columns(x), targets, folds, STRENGTHS)[1], in_memory, atol=1e-3)


def test_a_class_that_a_fold_does_not_have_and_a_constant_column_do_no_harm() -> None:
    x, targets, folds = rows_of(3)
    folds = np.where(targets[:, -1] > 0, 0, 1 + folds % 3)
    x[:, 4] = 0
    (weights, offset), logits = train_logistic(in_columns(x), targets, folds, STRENGTHS)
    assert all(np.isfinite(values).all() for values in (weights, offset, logits))
    assert not weights[4].any()


def calibrated(seed: int, skew: float) -> tuple[Array, Array, Array]:
    """Classes, uncalibrated probabilities and calibrated ones of rows that calibration did not see."""
    draw = np.random.default_rng(seed)
    n, classes = 8000, 5
    signal = draw.standard_normal((n, classes)) - skew * np.arange(classes)
    truth = (signal + draw.gumbel(size=(n, classes))).argmax(1)
    half, logits, scores = n // 2, 3.0 * signal, 0.05 * signal
    found = calibrate(np.eye(classes)[truth[:half]], np.arange(half) % 5, [scores[:half], logits[:half]])
    return truth[half:], softmax(logits[half:]), found.probabilities([scores[half:], logits[half:]])


@pytest.mark.parametrize("skew", [0.0, 0.7])
def test_probabilities_are_calibrated(skew: float) -> None:
    truth, before, after = calibrated(0, skew)
    assert calibration_error(truth, before) > 15
    assert calibration_error(truth, after) < 4


def test_the_prior_of_skewed_classes_is_discounted() -> None:
    truth, before, after = calibrated(0, 0.7)
    one, other = (classification_metrics(truth, p.argmax(1)) for p in (before, after))
    assert other["ua"] > one["ua"] + 2
    assert other["f1"] > one["f1"]
    truth, before, after = calibrated(0, 0.0)
    assert (before.argmax(1) == after.argmax(1)).mean() > 0.98


def test_that_all_rows_are_right_does_not_make_an_answer_certain() -> None:
    truth = np.arange(90) % 3
    targets = np.eye(3)[truth]
    found = calibrate(targets, np.arange(90) % 5, [targets, 4 * targets]).probabilities([targets, 4 * targets])
    assert (found.argmax(1) == truth).all()
    assert 0.98 < found.max(1).mean() < 0.999


def test_members_together_give_more_likelihood_than_each_alone() -> None:
    draw = np.random.default_rng(4)
    n, classes, half = 6000, 4, 3000
    signal = draw.standard_normal((n, classes))
    truth = (2 * signal + draw.gumbel(size=(n, classes))).argmax(1)
    ridge, kernel, logits = (gain * (signal + 0.7 * draw.standard_normal((n, classes))) for gain in (0.1, 0.2, 5.0))

    def loss(members: list[Array]) -> float:
        seen, unseen = ([scores[own] for scores in members] for own in (slice(half), slice(half, n)))
        found = calibrate(np.eye(classes)[truth[:half]], np.arange(half) % 5, seen)
        assert (found.scales >= 0).all()
        return float(-np.log(found.probabilities(unseen)[np.arange(half), truth[half:]]).mean())

    pairs = [[ridge, kernel], [ridge, logits], [kernel, logits]]
    alone = [[scores, scores] for scores in (ridge, kernel, logits)]
    assert max(map(loss, pairs)) < min(map(loss, alone)) - 0.05
    assert loss([ridge, kernel, logits]) < min(map(loss, pairs)) - 0.02
    noise = draw.standard_normal((n, classes))
    assert loss([ridge, noise, logits]) < loss([ridge, logits]) + 0.002

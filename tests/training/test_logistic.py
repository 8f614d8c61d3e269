"""The logistic member: what it finds is what scikit-learn finds, and no bit depends on the order of rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from mbd.blocks import Columns
from mbd.evaluation.metrics import calibration_error, classification_metrics
from mbd.model.coordinates import on_grid, softmax
from mbd.tensors import Array
from mbd.training.lattice import logistic
from mbd.training.lattice.classes import calibrate, train_logistic
from mbd.training.lattice.logistic import LogisticRows
from mbd.training.lattice.ridge import Fit

BLOCKS = (3, 5)
MANY = 60


def rows_of(seed: int, n: int = 240, classes: int = 4, skew: float = 1.0) -> LogisticRows:
    """Rows whose first columns tell the class, the first class being the most frequent."""
    draw = np.random.default_rng(seed)
    x = on_grid(draw.standard_normal((n, sum(BLOCKS))))
    scores = x[:, :classes] - skew * np.log1p(np.arange(classes)) + draw.gumbel(size=(n, classes))
    return LogisticRows(in_columns(x), np.eye(classes)[scores.argmax(1)], draw.integers(0, 5, n))


def in_columns(x: Array) -> Columns:
    return Columns((x[:, : BLOCKS[0]], x[:, BLOCKS[0] :]), np.arange(len(x)))


def matrix(rows: LogisticRows) -> Array:
    return rows.features[np.arange(len(rows.folds))]


def same_bytes(one: Fit, other: Fit) -> bool:
    return [part.tobytes() for part in one] == [part.tobytes() for part in other]


def test_the_fit_is_that_of_scikit_learn() -> None:
    rows, strength = rows_of(0), -1.5
    whole, left_out = rows.fit((strength, strength), MANY)
    labels = rows.targets.argmax(1)
    for fit, used in [(whole, labels >= 0), *((f, rows.folds != k) for k, f in enumerate(left_out))]:
        expected = LogisticRegression(C=1 / (10.0**strength * used.sum()), tol=1e-9, max_iter=5000)
        expected.fit(matrix(rows)[used], labels[used])
        found = softmax(matrix(rows) @ fit[0] + fit[1])
        np.testing.assert_allclose(found, expected.predict_proba(matrix(rows)), atol=2e-3)


def test_a_strength_belongs_to_its_block() -> None:
    weights, _ = rows_of(1).fit((3.0, -2.0), MANY)[0]
    assert np.abs(weights[: BLOCKS[0]]).max() < 1e-2 < np.abs(weights[BLOCKS[0] :]).max()


def test_several_strengths_at_once_are_each_alone() -> None:
    rows, choices = rows_of(2), [(-1.0, -1.0), (0.0, -2.0)]
    together = rows.left_out(choices, 10)
    for choice, fits in zip(choices, together, strict=True):
        alone = rows.left_out([choice], 10)[0]
        assert all(same_bytes(one, other) for one, other in zip(fits, alone, strict=True))


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_neither_order_nor_batches_of_rows_move_a_bit(seed: int) -> None:
    rows = rows_of(seed, n=150)
    order = np.random.default_rng(seed).permutation(150)
    shuffled = LogisticRows(in_columns(matrix(rows)[order]), rows.targets[order], rows.folds[order])
    one = rows.fit((-1.0, 0.0), 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logistic, "_BATCH", 700)
        other = shuffled.fit((-1.0, 0.0), 12)
    assert same_bytes(one[0], other[0])
    assert all(same_bytes(a, b) for a, b in zip(one[1], other[1], strict=True))


def test_a_class_that_a_fold_does_not_have_and_a_constant_column_do_no_harm() -> None:
    rows = rows_of(3)
    folds = np.where(rows.targets[:, -1] > 0, 0, 1 + rows.folds % 3)
    x = matrix(rows)
    x[:, 4] = 0
    (weights, offset), logits = train_logistic(LogisticRows(in_columns(x), rows.targets, folds), (0.0, 0.0))
    assert np.isfinite(weights).all()
    assert np.isfinite(offset).all()
    assert np.isfinite(logits).all()
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

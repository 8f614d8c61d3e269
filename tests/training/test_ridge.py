"""Ridge from Gram matrices: what it finds is what fitting the rows finds, and rows can be taken out of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.model.coordinates import on_grid
from mbd.tensors import Array
from mbd.training.lattice.ridge import FoldedRidge

BLOCKS = (3, 5)
STRENGTHS = (-1.0, 0.5)


def data(seed: int, rows: int = 60, targets: int = 1) -> tuple[Array, Array, Array]:
    draw = np.random.default_rng(seed)
    x, y = (on_grid(draw.standard_normal((rows, width))) for width in (sum(BLOCKS), targets))
    return x, y, draw.integers(0, 4, rows)


def fitted(x: Array, y: Array, strengths: tuple[float, ...], blocks: tuple[int, ...]) -> tuple[Array, Array]:
    """Ridge as textbooks have it: least squares with a row for each penalty."""
    centred, penalty = x - x.mean(0), np.sqrt(len(x) * np.repeat(10.0 ** np.array(strengths), blocks))
    rows = np.vstack([centred, np.diag(penalty)])
    weights = np.linalg.lstsq(rows, np.vstack([y - y.mean(0), np.zeros((x.shape[1], y.shape[1]))]))[0]
    return weights, y.mean(0) - x.mean(0) @ weights


@pytest.mark.parametrize("targets", [1, 3])
def test_fit_and_error_are_those_of_the_rows(targets: int) -> None:
    x, y, folds = data(0, targets=targets)
    ridge = FoldedRidge.of(x, y, folds, BLOCKS)
    for found, expected in zip(ridge.fit(STRENGTHS), fitted(x, y, STRENGTHS, BLOCKS), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)
    predicted = np.empty_like(y)
    for fold, fit in zip(np.unique(folds), ridge.left_out(STRENGTHS), strict=True):
        weights, offset = fitted(x[folds != fold], y[folds != fold], STRENGTHS, BLOCKS)
        np.testing.assert_allclose(fit[0], weights, atol=1e-10)
        predicted[folds == fold] = x[folds == fold] @ weights + offset
    assert ridge.error(STRENGTHS) == pytest.approx(((y - predicted) ** 2).mean())


def test_leading_columns_are_a_ridge_of_their_own() -> None:
    x, y, folds = data(1)
    few = FoldedRidge.of(x, y, folds, BLOCKS).leading(2)
    alone = FoldedRidge.of(x[:, [0, 1, 3, 4]], y, folds, (2, 2))
    assert few.blocks == (2, 2)
    assert few.error(STRENGTHS) == alone.error(STRENGTHS)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32))
def test_neither_order_nor_company_of_rows_moves_a_bit(seed: int) -> None:
    """Sums are exact: shuffled rows give the same fits, and so do rows that were among others and taken out again."""
    x, y, folds = data(seed)
    order = np.random.default_rng(seed).permutation(len(x))
    one, other = FoldedRidge.of(x, y, folds, BLOCKS), FoldedRidge.of(x[order], y[order], folds[order], BLOCKS)
    assert [w.tobytes() for w in one.fit(STRENGTHS)] == [w.tobytes() for w in other.fit(STRENGTHS)]
    gone = np.arange(len(x)) < 9
    z = np.hstack([np.ones((len(x), 1)), x, y])
    subtracted = [z[folds == f].T @ z[folds == f] - (r := z[(folds == f) & gone]).T @ r for f in range(4)]
    without = FoldedRidge.of(x[~gone], y[~gone], folds[~gone], BLOCKS)
    left = FoldedRidge(subtracted, BLOCKS)
    assert [w.tobytes() for w in left.fit(STRENGTHS)] == [w.tobytes() for w in without.fit(STRENGTHS)]
    assert left.error(STRENGTHS) == without.error(STRENGTHS)


def test_a_strength_is_chosen_by_the_error_out_of_fold() -> None:
    x, y, folds = data(2)
    ridge = FoldedRidge.of(x, x[:, :1], folds, BLOCKS)
    assert ridge.best_alone((-2.0, 0.0, 2.0)) == (-2.0, -2.0)
    assert ridge.best_from((0.0, 0.0))[0] < 0
    noise = FoldedRidge.of(x, y, folds, BLOCKS)
    assert noise.best_alone((-2.0, 0.0, 2.0)) == (2.0, 2.0)

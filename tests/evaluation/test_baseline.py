"""Ridge baselines: the right map for each row's pattern, and what fills a hole."""

from dataclasses import replace

import numpy as np
import pytest

from mbd.evaluation.ridge import ImputedRidge, PatternRidge, fit_ridge
from mbd.features.rows import Rows
from mbd.tensors import Array
from tests.features.build import small_rows


def with_holes(rows: Rows) -> Rows:
    rng = np.random.default_rng(3)
    bits = {m: rng.random(len(rows)) < 0.7 for m in rows.features}
    nothing = ~np.any(list(bits.values()), axis=0)
    return replace(rows, available={m: b | nothing for m, b in bits.items()})


def by_row(ridge: PatternRidge | ImputedRidge, rows: Rows) -> Array:
    """Return what each row gets for what it has."""
    inputs = [{m: x[[i]] for m, x in rows.features.items() if rows.available[m][i]} for i in range(len(rows))]
    return np.array([ridge.predict(own)[0] for own in inputs])


def targets(rows: Rows) -> Array:
    return rows.labels[:, None].astype(np.float64)


def test_each_row_is_mapped_by_the_ridge_of_what_it_has() -> None:
    train, test = with_holes(small_rows("train", 60)), with_holes(small_rows("test", 30))
    found = by_row(PatternRidge(train, 0), test)
    patterns = set()
    for i in range(len(test)):
        pattern = [m for m in test.features if test.available[m][i]]
        patterns.add(tuple(pattern))
        there = np.all([train.available[m] for m in pattern], axis=0)
        ridge = fit_ridge(np.hstack([train.features[m][there] for m in pattern]), targets(train)[there])
        row = np.hstack([test.features[m][i] for m in pattern])
        assert found[i] == pytest.approx(ridge.predict(row[None])[0, 0])
    assert len(patterns) >= 4


def test_a_pattern_that_train_does_not_have_gives_the_mean_label() -> None:
    train = small_rows("train", 20)
    train = replace(train, available={**train.available, "audio": np.zeros(20, bool)})
    found = PatternRidge(train, 0).predict({"audio": np.ones((2, 3), np.float32)})
    assert found == pytest.approx(np.full(2, train.labels.mean()))


@pytest.mark.parametrize("with_mean", [True, False])
def test_imputation_fills_train_and_test_alike(with_mean: bool) -> None:
    train, test = with_holes(small_rows("train", 60)), with_holes(small_rows("test", 30))

    def filled(rows: Rows) -> Array:
        parts = []
        for m, x in rows.features.items():
            mean = train.features[m][train.available[m]].astype(np.float64).mean(0)
            parts.append(np.where(rows.available[m][:, None], x, mean if with_mean else 0))
        return np.hstack(parts)

    found = by_row(ImputedRidge.beside(PatternRidge(train, 0), with_mean=with_mean), test)
    assert found == pytest.approx(fit_ridge(filled(train), targets(train)).predict(filled(test))[:, 0])


def test_modalities_in_another_order_are_the_same_modalities() -> None:
    train, test = small_rows("train", 40), small_rows("test", 10)
    for shown in (("text", "audio"), ("text", "audio", "visual")):
        first, second = ({m: test.features[m] for m in order} for order in (shown, shown[::-1]))
        for ridge in (PatternRidge(train, 0), ImputedRidge.beside(PatternRidge(train, 0), with_mean=True)):
            assert ridge.predict(first).tobytes() == ridge.predict(second).tobytes()


def test_classes_have_a_column_each() -> None:
    train, test = small_rows("train", 40, classes=3), small_rows("test", 10, classes=3)
    for baseline in (PatternRidge(train, 3), ImputedRidge.beside(PatternRidge(train, 3), with_mean=False)):
        outputs = baseline.predict(test.features)
        assert outputs.shape == (10, 3)
        assert outputs.sum(1) == pytest.approx(np.ones(10))

"""Ridge against scikit-learn, tall and wide; baselines by it: the map of each pattern, and what fills a hole."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.preprocessing import StandardScaler

from mbd import blocks
from mbd.blocks import Columns
from mbd.evaluation import ridge
from mbd.evaluation.ridge import LAMBDAS, ImputedRidge, PatternRidge, RidgeSums, fit_ridge
from mbd.features.rows import Rows
from mbd.tensors import Array
from tests.features.build import small_rows


@pytest.mark.parametrize(("n", "d"), [(40, 6), (12, 30)])
def test_the_map_is_that_of_scikit_learn(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(2, 3, (n, d)), rng.standard_normal((n, 2))
    found = fit_ridge(x, y)
    scaler = StandardScaler().fit(x)
    expected = Ridge(alpha=found.strength).fit(scaler.transform(x), y)
    new = rng.normal(2, 3, (5, d))
    assert found.predict(new) == pytest.approx(expected.predict(scaler.transform(new)))


def test_the_strength_has_the_least_leave_one_out_error() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((25, 8))
    x = (x - x.mean(0)) / x.std(0)
    y = x @ rng.standard_normal((8, 1)) + 2 * rng.standard_normal((25, 1))
    errors = {
        strength: np.mean((cross_val_predict(Ridge(alpha=strength), x, y.ravel(), cv=LeaveOneOut()) - y.ravel()) ** 2)
        for strength in LAMBDAS
    }
    assert fit_ridge(x, y).strength == min(errors, key=lambda strength: errors[strength])


def test_a_column_that_never_varies_is_no_trouble() -> None:
    x = np.column_stack([np.arange(6.0), np.full(6, 3.0)])
    assert np.isfinite(fit_ridge(x, np.arange(6.0)[:, None]).predict(x)).all()


@pytest.mark.parametrize(("n", "d"), [(60, 8), (12, 30)])
def test_some_columns_can_be_fitted_from_the_sums_of_all(n: int, d: int) -> None:
    rng = np.random.default_rng(2)
    x, y, chosen = rng.normal(1, 2, (n, d)), rng.standard_normal((n, 1)), np.array([0, 3, 4, 7])
    found, alone = RidgeSums.of(x, y).fit(chosen), fit_ridge(x[:, chosen], y)
    assert found.strength == alone.strength
    assert found.predict(x[:, chosen]) == pytest.approx(alone.predict(x[:, chosen]))


def test_rows_in_blocks_give_the_map_of_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(2, 3, (3000, 5)), rng.standard_normal((3000, 2))
    whole = fit_ridge(x, y)
    monkeypatch.setattr(blocks, "_NUMBERS", 1)
    found = fit_ridge(Columns((x,), np.arange(3000)), y)
    assert found.strength == whole.strength
    assert found.weights == pytest.approx(whole.weights)
    assert found.predict(x) == pytest.approx(whole.predict(x))


def test_of_many_rows_some_choose_the_strength_and_all_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((500, 4))
    y = x @ rng.standard_normal((4, 1)) + rng.standard_normal((500, 1))
    monkeypatch.setattr(ridge, "_LEFT_OUT", 100)
    found = fit_ridge(x, y)
    scaler = StandardScaler().fit(x)
    expected = Ridge(alpha=found.strength).fit(scaler.transform(x), y)
    assert found.predict(x)[:, 0] == pytest.approx(expected.predict(scaler.transform(x)))


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
        for baseline in (PatternRidge(train, 0), ImputedRidge.beside(PatternRidge(train, 0), with_mean=True)):
            assert baseline.predict(first).tobytes() == baseline.predict(second).tobytes()


def test_classes_have_a_column_each() -> None:
    train, test = small_rows("train", 40, classes=3), small_rows("test", 10, classes=3)
    for baseline in (PatternRidge(train, 3), ImputedRidge.beside(PatternRidge(train, 3), with_mean=False)):
        outputs = baseline.predict(test.features)
        assert outputs.shape == (10, 3)
        assert outputs.sum(1) == pytest.approx(np.ones(10))

"""Ridge against scikit-learn, tall and wide, and its choice of λ against leaving each row out in turn."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.preprocessing import StandardScaler

from mbd import blocks
from mbd.blocks import Columns
from mbd.evaluation import ridge
from mbd.evaluation.ridge import LAMBDAS, RidgeSums, fit_ridge


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

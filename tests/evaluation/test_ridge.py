"""Ridge against scikit-learn, tall and wide, and its choice of λ against leaving each row out in turn."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.preprocessing import StandardScaler

from mbd.evaluation.ridge import LAMBDAS, fit_ridge


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

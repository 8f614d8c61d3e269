"""The paper's quantities: what they say, and where they say nothing."""

from math import exp
from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.deletion.calibration import Calibration
from mbd.deletion.quantities import candidate_bound, rank_correlation, relative_error_bound, third_derivative
from tests.deletion.models import calibration, home_with_models, model_before


def test_the_candidate_bound_says_nothing_above_the_budget() -> None:
    assert candidate_bound(100, 10_000, 0.03) == pytest.approx(exp(-2 * 0.02**2 * 10_000))
    assert candidate_bound(300, 10_000, 0.03) == 1
    assert candidate_bound(9_000, 10_000, 0.03) == 1


def test_the_relative_error_bound_is_that_of_the_lemma() -> None:
    weights, chi = np.array([0.1, -0.5, 0.2]), np.array([0.0, 0.5, 0.9])
    assert relative_error_bound(3.0, weights, chi) == pytest.approx(0.2 / 0.1**2)


def test_rank_correlation_is_spearmans() -> None:
    x = np.array([1.0, 2, 3, 4, 5])
    assert rank_correlation(x, np.exp(x)) == pytest.approx(1)
    assert rank_correlation(x, -x) == pytest.approx(-1)
    assert rank_correlation(x, np.zeros(5)) is None
    assert rank_correlation(x[:1], x[:1]) is None


def test_the_third_derivative_is_found_where_it_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is the cube of one weight has the third derivative 6 along it."""
    given = calibration(model_before(home_with_models(tmp_path)), torch.float32)

    def cube(network: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return network.get_parameter("head.bias").pow(3).expand(len(batch["labels:"]), 1)

    monkeypatch.setattr(Calibration, "prediction", lambda self, hidden: cube)
    assert third_derivative(given, ["audio"], 0) == pytest.approx(6, rel=1e-6)
    assert given.network.head.bias.dtype is torch.float32

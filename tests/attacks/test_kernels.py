"""Ridge on kernels: what a fold is predicted without fitting again is what a fit on the other folds predicts."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.attacks.kernels import _STRENGTHS, ATTRIBUTE, OWN, _kinds, _targets
from mbd.tensors import Array
from tests.attacks.models import context_of


def refitted(kernel: Array, folds: Array, targets: Array, strength: float) -> Array:
    """Fit each fold's predictions on the others, in double precision."""
    predicted = np.empty_like(targets)
    for fold in np.unique(folds):
        held, others = folds == fold, folds != fold
        centre = targets[others].mean(0)
        square = kernel[np.ix_(others, others)] + strength * np.eye(others.sum())
        predicted[held] = kernel[np.ix_(held, others)] @ np.linalg.solve(square, targets[others] - centre) + centre
    return predicted


@pytest.mark.parametrize("width", [3, 400])  # few columns, and more than rows
@pytest.mark.parametrize("wanted", [ATTRIBUTE, OWN])
def test_every_fold_is_predicted_as_by_a_fit_on_the_others(model_workspace: Path, width: int, wanted: slice) -> None:
    attack_context = context_of(model_workspace)
    matrix = np.random.default_rng(0).standard_normal((len(attack_context.rows), width)).astype(np.float32)
    matrix[:, 0] += 2 * attack_context.attribute.values
    (kind,) = _kinds({"layer": matrix}, attack_context).values()
    assert (kind.columns is not None) == (width == 3)
    kernel, targets = kind.kernel.double().numpy(), _targets(attack_context)[:, wanted]
    found, folds = kind.out_of_fold(wanted), np.sort(attack_context.folds)
    for place, strength in enumerate(_STRENGTHS):
        expected = refitted(kernel, folds, targets.double().numpy(), strength)
        assert found[place].numpy() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("width", [3, 400])
def test_scored_rows_are_predicted_from_all_fit_rows(model_workspace: Path, width: int) -> None:
    attack_context = context_of(model_workspace)
    matrix = np.random.default_rng(0).standard_normal((len(attack_context.rows), width)).astype(np.float32)
    (kind,) = _kinds({"layer": matrix}, attack_context).values()
    targets = _targets(attack_context).double()
    square = kind.kernel.double() + _STRENGTHS[1] * torch.eye(len(targets), dtype=torch.float64)
    expected = kind.across.double() @ torch.linalg.solve(square, targets - targets.mean(0)) + targets.mean(0)
    found = kind.predict(targets.float(), 1)
    assert found.numpy() == pytest.approx(expected.numpy(), abs=1e-4)

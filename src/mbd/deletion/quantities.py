"""Estimates of the constants in the paper's argument. They are measurements and prove nothing.

L    max_i ‖∇ℓ_i‖                       over the calibration rows; the Lipschitz constant is a supremum over all data
I    P(|I| ≥ (p+η)|W|) ≤ exp(−2η²|W|)   if indices were chosen independently, which they are not
M    max_u |d³/dt³ L(W + t u)|          along a few directions, so a lower estimate; undefined at the kink of a ReLU.
                                        The paper's error bound needs an upper one; the record says so
"""

from collections.abc import Callable, Collection
from copy import deepcopy
from math import exp

import numpy as np
import torch
from torch import Tensor

from mbd.deletion.calibration import Calibration
from mbd.randomness import stream
from mbd.tensors import Array

_STEP = 1e-2
_SMALLEST_NORM = 1e-30
_RANDOM_DIRECTIONS = 1
_ROWS = 32


def candidate_bound(candidates: int, parameters: int, budget: float) -> float:
    """Bound the probability that more than a share r of all parameters become candidates.

    p is the observed share and η = r − p. If p ≥ r, the inequality says nothing and the bound is 1.
    """
    slack = budget - candidates / parameters
    return exp(-2 * slack**2 * parameters) if slack > 0 else 1.0


def relative_error_bound(third_derivative: float, weights: Array, chi: Array) -> float | None:
    """Return max_q M/3 · |w_q| / (1 − χ_q)² over the candidates: the paper's bound on the error of its proxy."""
    return third_derivative / 3 * float((np.abs(weights) / (1 - chi) ** 2).max()) if weights.size else None


def rank_correlation(one: Array, other: Array) -> float | None:
    """Return Spearman's ρ of two proxies, or None if one of them is constant."""
    ranks = [np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (one, other)]
    if one.size < 2 or min(np.ptp(one), np.ptp(other)) == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def third_derivative(calibration: Calibration, hidden: Collection[str], seed: int) -> float:
    """Return the largest |d³/dt³ L(W + t u)| along three unit vectors u: the weights, the gradient, a random direction.

    L is the mean supervised loss of some calibration rows. The derivative is a finite difference in float64.
    """
    network, losses = deepcopy(calibration.network).double(), calibration.prediction(hidden)
    first = next(iter(calibration.batches(hidden=hidden)))
    batch = {k: v[:_ROWS].double() if v.is_floating_point() else v[:_ROWS] for k, v in first.items()}

    def loss() -> Tensor:
        return losses(network, batch)[:, 0].mean()

    parameters = [parameter.requires_grad_() for parameter in network.parameters()]
    gradients = torch.autograd.grad(loss(), parameters, allow_unused=True)
    used = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
    weights = [p.detach().clone() for p, _ in used]
    draw = stream(seed, "deletion", "third derivative")
    directions = [weights, [g for _, g in used]]
    for _ in range(_RANDOM_DIRECTIONS):
        directions.append([torch.from_numpy(draw.standard_normal(tuple(w.shape))).to(w.device) for w in weights])

    moved = [parameter for parameter, _ in used]
    with torch.no_grad():
        return max([0.0, *(_third_difference(loss, moved, u) for u in directions)])


def _third_difference(loss: Callable[[], Tensor], parameters: list[Tensor], direction: list[Tensor]) -> float:
    """Return |d³/dt³| of the loss along `direction`; moves the parameters and restores them."""
    step = _STEP / max(float(torch.stack([u.norm() for u in direction]).norm()), _SMALLEST_NORM)
    before, values, offset = [p.clone() for p in parameters], [], 0
    for k in (-2, -1, 1, 2):
        for parameter, u in zip(parameters, direction, strict=True):
            parameter.add_(u, alpha=(k - offset) * step)
        values.append(float(loss()))
        offset = k
    for parameter, old in zip(parameters, before, strict=True):
        parameter.copy_(old)
    return abs(values[3] - 2 * values[2] + 2 * values[1] - values[0]) / (2 * _STEP**3)

"""Ridge regression as a baseline: one linear map for each availability pattern.

With features standardised on the train rows, w = (XᵀX + λI)⁻¹Xᵀy, and the λ of least leave-one-out error. From the
eigendecomposition of the smaller of XᵀX and XXᵀ, every λ costs one product: the leave-one-out residual of row i is
(y_i − ŷ_i) / (1 − h_i) with h the diagonal of the hat matrix.
"""

from dataclasses import dataclass

import numpy as np

from mbd.tensors import Array

LAMBDAS = 10.0 ** np.arange(-1, 6, 0.5)
_DEVIATION_FLOOR = 1e-6


@dataclass(frozen=True)
class Ridge:
    """A fitted ridge map; targets may have several columns."""

    mean: Array
    scale: Array
    weights: Array
    offset: Array
    strength: float

    def predict(self, features: Array) -> Array:
        """Return the prediction for each row (a column for each target)."""
        return ((features - self.mean) / self.scale) @ self.weights + self.offset


def fit_ridge(features: Array, targets: Array) -> Ridge:
    """Fit `targets` (n × t) on `features` (n × d)."""
    x = np.asarray(features, np.float64)
    mean, scale = x.mean(0), np.maximum(x.std(0), _DEVIATION_FLOOR)
    x = (x - mean) / scale
    offset = targets.mean(0)
    solution = solve_ridge(x, targets - offset)
    return Ridge(mean, scale, solution.weights, offset, solution.strength)


@dataclass(frozen=True)
class Solution:
    """The map of least leave-one-out error."""

    weights: Array
    """d × t"""
    strength: float
    """λ"""
    left_out: Array
    """n × t: what the map without a row predicts for it"""


def solve_ridge(x: Array, y: Array) -> Solution:
    """Fit centred targets `y` (n × t) on standardised features `x` (n × d), in float64."""
    wide = x.shape[1] > x.shape[0]
    values, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    values = np.maximum(values, 0)
    # Left singular vectors times singular values (n × k), whichever side was decomposed.
    scores = vectors * np.sqrt(values) if wide else x @ vectors
    projected = scores.T @ y
    squared = scores**2
    best: tuple[float, float, Array] = (np.inf, 0.0, y)
    for strength in LAMBDAS:
        shrink = 1 / (values + strength)
        leverage = squared @ shrink + 1 / len(x)
        residual = (y - scores @ (shrink[:, None] * projected)) / np.maximum(1 - leverage, 1e-9)[:, None]
        best = min(best, (float((residual**2).mean()), float(strength), residual), key=lambda found: found[:2])
    _, strength, residual = best
    if wide:
        weights = x.T @ (vectors @ ((vectors.T @ y) / (values + strength)[:, None]))
    else:
        weights = vectors @ ((vectors.T @ (x.T @ y)) / (values + strength)[:, None])
    return Solution(weights, strength, y - residual)

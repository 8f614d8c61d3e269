"""The logistic member of a module of classes: multinomial logistic regression, with every fold left out in turn.

For features x, classes y (one-hot) and strengths λ (one for each block of columns):

    minimise  −1/n Σ log softmax(x W + b)_y + ½ Σ λ_j ‖W_j‖²        over the rows that are not left out

by a few steps of L-BFGS. Coordinates are principal directions, so the Hessian is nearly diagonal: weights are divided
by the root of its diagonal at the class frequencies, v_j π_k (1 − π_k) + λ_j. Strengths are those of the ridge times a
factor, the one of greatest likelihood out of fold; the fit with a smaller factor goes on from that with a larger one.
Products are in single precision, in which coordinates are exact.
"""

import math

import numpy as np
from scipy.optimize import minimize

from mbd.blocks import Columns, Wide, spans
from mbd.model.coordinates import cross_entropy, softmax
from mbd.tensors import Array
from mbd.training.lattice.folds import fold_numbers
from mbd.training.lattice.ridge import Fit, Strengths, out_of_fold

_FACTORS = 10.0 ** np.array([0.0, -0.5, -1.0, -1.5])  # a logistic Hessian is that of ridge times π (1 − π)
_STEPS = 6
_IN_MEMORY = 1 << 24
"""numbers of features that are read once: 64 MiB"""
_LEAST_CURVATURE = 1e-6


def train_logistic(features: Columns, targets: Array, folds: Array, strengths: Strengths) -> tuple[Fit, Array]:
    """Return the logistic member of all rows, and its logits out of fold."""
    penalty = np.repeat(10.0 ** np.array(strengths), features.blocks)
    left_out = [_fits(features, targets, folds != fold, penalty, _FACTORS) for fold in fold_numbers(folds)]
    logits = [out_of_fold(features, folds, [fits[k] for fits in left_out]) for k in range(len(_FACTORS))]
    best = min(range(len(_FACTORS)), key=lambda k: cross_entropy(logits[k], targets.argmax(1)))
    return _fits(features, targets, folds >= 0, penalty, _FACTORS[: best + 1])[-1], logits[best]


def _fits(features: Columns, targets: Array, used: Array, penalty: Array, factors: Array) -> list[Fit]:
    """Return the fit to the used rows (a mask) with each factor of the penalty."""
    columns, y = Columns(features.parts, features.rows[used]), targets[used]
    x = columns[:].astype(np.float32) if math.prod(columns.shape) <= _IN_MEMORY else columns
    frequency = (y.sum(0) + 0.5) / (len(y) + 0.5 * y.shape[1])
    curvature = np.maximum(frequency * (1 - frequency), _LEAST_CURVATURE)
    variance = sum((np.square(x[own]).sum(0) for own in spans(*x.shape)), np.zeros(len(penalty))) / len(y)
    weights, fits = np.vstack([np.log(frequency), np.zeros((len(penalty), len(frequency)))]), []
    for factor in factors:
        strengths = factor * np.append(0, penalty)[:, None]
        scale = 1 / np.sqrt(np.append(1, variance)[:, None] * curvature + strengths)
        weights = scale * _minimise(x, y, strengths, scale, weights / scale)
        fits.append((weights[1:], weights[0]))
    return fits


def _minimise(x: Wide, y: Array, strengths: Array, scale: Array, start: Array) -> Array:
    """Return the weights, divided by their scale, after a few steps."""

    def objective(scaled: Array) -> tuple[float, Array]:
        weights = scale * scaled.reshape(scale.shape)
        loss, gradient = (strengths * weights**2).sum() / 2, strengths * weights
        for own in spans(*x.shape):
            features, targets = x[own].astype(np.float32, copy=False), y[own]
            logits = features @ weights[1:].astype(np.float32) + weights[0]
            loss += cross_entropy(logits, targets.argmax(1)) * len(targets) / len(y)
            residuals = (softmax(logits) - targets) / len(y)
            gradient[0] += residuals.sum(0)
            gradient[1:] += features.T @ residuals.astype(np.float32)
        return float(loss), (scale * gradient).ravel()

    best: Array = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS}).x
    return best.reshape(scale.shape)

"""What makes probabilities of the members of a module of classes: calibration, and a discount of the prior.

With the members' scores s (ridge, kernel ridge if there is one, logistic), all out of fold,

    z = c Σ w_k c_k s_k − τ log π                             π: class frequencies in train

Each c_k, and c, makes the likelihood greatest, so that softmax z is calibrated; the w_k ≥ 0 do too, together, but are
pulled towards ½ for the logistic member and ½ for the ridges: squared loss errs by answering the common classes,
logistic loss by its confidence. τ discounts the prior: it is the one with the greatest weighted F1 over the folds, less
half the standard error of what it gains over τ = 0. The constants were chosen by folds of train rows (docs/models.md).

The logistic member is multinomial logistic regression, with every fold left out in turn. For features x, classes y
(one-hot) and strengths λ (one for each block of columns):

    minimise  −1/n Σ log softmax(x W + b)_y + ½ Σ λ_j ‖W_j‖²        over the rows that are not left out

by a few steps of L-BFGS. Coordinates are principal directions, so the Hessian is nearly diagonal: weights are divided
by the root of its diagonal at the class frequencies, v_j π_k (1 − π_k) + λ_j. Strengths are those of the ridge times a
factor, the one of greatest likelihood out of fold; the fit with a smaller factor goes on from that with a larger one.
Products are in single precision, in which coordinates are exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import minimize

from mbd.blocks import Columns, Wide, spans
from mbd.evaluation.metrics import weighted_f1
from mbd.model.coordinates import cross_entropy, softmax
from mbd.tensors import Array
from mbd.training.lattice.ridge import Fit, Strengths, fold_numbers, out_of_fold

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


_PULL = 0.02  # of the members' weights towards halves, in nats
_DISCOUNTS = np.arange(0, 1.01, 0.1)
_STANDARD_ERRORS = 0.5  # that are taken off the gain of a discount
_SHARPEST = 6.0  # log₂ of the greatest and least factor of scores
_HALVINGS = 20


@dataclass(frozen=True)
class ClassCalibration:
    """z = Σ scales[k] s_k + shift."""

    scales: Array
    shift: Array

    def probabilities(self, members: Sequence[Array]) -> Array:
        """Return softmax z."""
        return softmax(_weighted_sum(self.scales, members) + self.shift)


def calibrate(targets: Array, folds: Array, members: Sequence[Array]) -> ClassCalibration:
    """Return how the members' scores, all out of fold, the logistic member's last, become probabilities."""
    scales = _scales(targets, members)
    z = _weighted_sum(scales, members)
    prior = -np.log((targets.sum(0) + 0.5) / (len(targets) + 0.5 * targets.shape[1]))
    discount = max(_DISCOUNTS, key=partial(_gain, targets, folds, z, prior))
    sharpness = _sharpness(targets, z + discount * prior)
    return ClassCalibration(sharpness * scales, sharpness * discount * prior)


def _scales(targets: Array, members: Sequence[Array]) -> Array:
    """Return w_k c_k of each member."""
    alone, truth = np.array([_sharpness(targets, scores) for scores in members]), targets.argmax(1)
    halves = np.array([0.5 / (len(members) - 1)] * (len(members) - 1) + [0.5])

    def objective(weights: Array) -> tuple[float, Array]:
        z, apart = _weighted_sum(weights * alone, members), weights - halves
        surplus = (softmax(z) - targets) / len(targets)
        slopes = alone * [(surplus * scores).sum() for scores in members]
        return cross_entropy(z, truth) + _PULL * float(apart @ apart), slopes + 2 * _PULL * apart

    bounds = [(0, None)] * len(members)
    scales: Array = alone * minimize(objective, halves, jac=True, bounds=bounds, method="L-BFGS-B").x
    return scales


def _weighted_sum(scales: Array, members: Sequence[Array]) -> Array:
    total: Array = sum((scale * scores for scale, scores in zip(scales, members, strict=True)), np.zeros(()))
    return total


def _gain(targets: Array, folds: Array, z: Array, prior: Array, discount: float) -> float:
    """Return how much weighted F1 a discount gains over none, less half the standard error over folds."""
    truth = targets.argmax(1)
    gains = _f1_of_folds(truth, (z + discount * prior).argmax(1), folds) - _f1_of_folds(truth, z.argmax(1), folds)
    return float(gains.mean() - _STANDARD_ERRORS * gains.std(ddof=1) / np.sqrt(len(gains)))


def _f1_of_folds(truth: Array, answers: Array, folds: Array) -> Array:
    own = (folds == fold for fold in fold_numbers(folds))
    return np.array([weighted_f1(truth[rows], answers[rows]) for rows in own])


def _sharpness(targets: Array, scores: Array) -> float:
    """Return the c at which softmax(c scores) gives the true classes the greatest likelihood, by bisection.

    One row more, whose class is unknown, is added to the n: that all are right does not make an answer certain.
    """
    low, high = -_SHARPEST, _SHARPEST
    targets = (len(targets) * targets + 1 / targets.shape[1]) / (len(targets) + 1)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        slope = ((softmax(2.0**middle * scores) - targets) * scores).sum()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return float(2.0 ** ((low + high) / 2))

"""Multinomial logistic regression from exact sums: all folds and strengths at once, by a few steps of L-BFGS.

For features x on the grid, classes y (one-hot), strengths λ (one for each block of columns) and every fold left out:

    minimise  −1/n Σ log softmax(x W + b)_y + ½ Σ λ_j ‖W_j‖²        over the rows that are not left out

Coordinates are principal directions, so the Hessian is nearly diagonal: steps are preconditioned by its diagonal at the
class frequencies, v_j π_k (1 − π_k) + λ_j. All problems share one product of the rows with their weights side by side.

Weights, residuals softmax − y and log-likelihoods are rounded to a grid on which every sum over rows is exact in
float64. As in :mod:`mbd.training.lattice.ridge`, neither the order of rows, nor their batches, nor the processes that
share them change a bit.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np

from mbd.blocks import Columns, Map, in_blocks, shards
from mbd.tensors import Array
from mbd.training.lattice.folds import fold_numbers
from mbd.training.lattice.ridge import Fit, Strengths

_GRID = 2.0**20
_LARGEST = 8.0  # of a weight: with the grids, products with rows are exact
_MEMORY = 5  # steps that L-BFGS remembers
_ENOUGH = 1e-4  # share of the expected decrease that a step must bring
_BATCH = 2**16  # numbers that are worked on at once: as many as a cache holds


@dataclass(frozen=True)
class LogisticRows:
    """Rows of one module: features (n × d) in blocks of columns, one-hot classes (n × c), folds."""

    features: Columns
    targets: Array
    folds: Array
    mapped: Map = map
    """over shards of rows"""

    def leading(self, columns: int) -> "LogisticRows":
        """Return the same rows with the first `columns` of each block."""
        return replace(self, features=self.features.cut(slice(columns)))

    def left_out(self, strengths: Sequence[Strengths], steps: int) -> list[list[Fit]]:
        """Return, for each choice of strengths and each fold in order, the fit that left the fold out."""
        folds = fold_numbers(self.folds)
        fits = self._fits(strengths, self.folds[:, None] != folds, steps)
        return [fits[start : start + len(folds)] for start in range(0, len(fits), len(folds))]

    def fit(self, strengths: Strengths, steps: int) -> tuple[Fit, list[Fit]]:
        """Return the fit to all rows, and for each fold in order the fit that left it out."""
        used = np.hstack([np.ones((len(self.folds), 1), bool), self.folds[:, None] != fold_numbers(self.folds)])
        whole, *left_out = self._fits([strengths], used, steps)
        return whole, left_out

    def _fits(self, strengths: Sequence[Strengths], used: Array, steps: int) -> list[Fit]:
        """Return the fit with each of `strengths` to each set of rows, a column of `used`."""
        penalty = np.stack([np.repeat(10.0 ** np.array(choice), self.features.blocks) for choice in strengths], axis=1)
        problems = _Problems(
            self.features,
            self.targets,
            np.tile(used, (1, len(strengths))),
            np.repeat(penalty, used.shape[1], axis=1),
            self.mapped,
        )
        return [(weights[1:], weights[0]) for weights in np.moveaxis(_minimise(problems, steps), 2, 0).copy()]


class _Problems:
    """Several problems on the same rows: `used` rows (n × problems), `penalty` (d × problems).

    Weights are (1 + d) × classes × problems: all of a class side by side, so that sums over classes run along columns.
    """

    def __init__(self, features: Columns, targets: Array, used: Array, penalty: Array, mapped: Map) -> None:
        self._penalty, self._mapped = penalty[:, None], mapped
        self._count, classes = used.sum(0).astype(np.float64), targets.argmax(1)
        self._shards = [_Shard(features.shard(own), classes[own], used[own]) for own in shards(np.arange(len(used)))]
        frequency = (targets.T @ used.astype(np.float64) + 0.5) / (self._count + 0.5 * targets.shape[1])
        curvature = frequency * (1 - frequency)
        variance = np.sum(list(mapped(_Shard.squares, self._shards)), axis=0) / len(targets)
        diagonal = variance[:, None, None] * curvature + self._penalty
        self.inverse_diagonal = 1 / np.concatenate([curvature[None], diagonal])
        self.start = np.zeros_like(self.inverse_diagonal)
        self.start[0] = _rounded(np.log(frequency))

    def evaluate(self, weights: Array) -> tuple[Array, Array]:
        """Return the objective of each problem, and its gradient at `weights`."""
        likelihood, gradient = np.zeros(weights.shape[2]), np.zeros_like(weights)
        for likelihoods, gradients in self._mapped(_Shard.sums, self._shards, repeat(weights)):
            likelihood += likelihoods
            gradient += gradients
        gradient /= self._count
        gradient[1:] += self._penalty * weights[1:]
        penalty = (self._penalty * np.square(weights[1:])).sum((0, 1)) / 2
        return penalty - likelihood / self._count, gradient


@dataclass(frozen=True)
class _Shard:
    """Some rows: features, class (a number), and which problems use them (n × problems)."""

    features: Columns
    classes: Array
    used: Array

    def squares(self) -> Array:
        """Return the sum of squares of each column."""
        found: Array = np.sum([np.einsum("ij,ij->j", x, x) for _, x in self._blocks()], axis=0)
        return found

    def sums(self, weights: Array) -> tuple[Array, Array]:
        """Return log-likelihood and sum of residuals times inputs; both are exact."""
        likelihood, gradient = np.zeros(weights.shape[2]), np.zeros_like(weights)
        batch = max(_BATCH // weights[0].size, 1)
        for rows, features in self._blocks():
            for start in range(0, len(rows), batch):
                own = slice(start, start + batch)
                likelihoods, gradients = self._sums(rows[own], features[own], weights)
                likelihood += likelihoods
                gradient += gradients
        return likelihood, gradient

    def _blocks(self) -> Iterator[tuple[Array, Array]]:
        """Yield positions and features of some rows at a time."""
        rows, columns = self.features.shape
        return ((own, self.features[own]) for own in in_blocks(np.arange(rows), columns))

    def _sums(self, rows: Array, x: Array, weights: Array) -> tuple[Array, Array]:
        used, place = self.used[rows], np.arange(len(rows))
        logits = (x @ weights[1:].reshape(len(weights) - 1, -1)).reshape(len(x), *weights.shape[1:])
        logits += weights[0]
        logits -= logits.max(1, keepdims=True)
        true = logits[place, self.classes[rows]]
        residuals = np.exp(logits, out=logits)
        total = residuals.sum(1)
        residuals *= (used / total)[:, None]
        residuals[place, self.classes[rows]] -= used
        residuals *= _GRID
        np.rint(residuals, out=residuals)
        residuals /= _GRID
        sums = np.empty_like(weights)
        sums[0] = residuals.sum(0)
        sums[1:] = (x.T @ residuals.reshape(len(x), -1)).reshape(sums[1:].shape)
        log_likelihood = np.rint((true - np.log(total)) * _GRID) / _GRID
        return (log_likelihood * used).sum(0), sums


def _minimise(problems: _Problems, steps: int) -> Array:
    """Return weights after `steps` evaluations; a step that does not help enough is halved."""
    weights = problems.start
    objective, gradient = problems.evaluate(weights)
    memory: deque[tuple[Array, Array]] = deque(maxlen=_MEMORY)
    direction, length = -problems.inverse_diagonal * gradient, np.ones(len(objective))
    for _ in range(steps):
        trial = _rounded(weights + length * direction)
        trial_objective, trial_gradient = problems.evaluate(trial)
        better = trial_objective <= objective + _ENOUGH * length * _dot(gradient, direction)
        memory.append((np.where(better, trial - weights, 0), np.where(better, trial_gradient - gradient, 0)))
        weights, gradient = np.where(better, trial, weights), np.where(better, trial_gradient, gradient)
        objective, length = np.where(better, trial_objective, objective), np.where(better, 1.0, length / 2)
        direction = np.where(better, -_times_inverse_hessian(gradient, problems.inverse_diagonal, memory), direction)
    return weights


def _times_inverse_hessian(gradient: Array, inverse_diagonal: Array, memory: deque[tuple[Array, Array]]) -> Array:
    """Return H⁻¹ gradient, with H from its diagonal and the last steps (two-loop recursion)."""
    q, shares = gradient.copy(), []
    for moved, bent in reversed(memory):
        curvature = _dot(moved, bent)
        inverse = np.divide(1, curvature, out=np.zeros_like(curvature), where=curvature > 0)
        share = inverse * _dot(moved, q)
        q -= share * bent
        shares.append((inverse, share))
    q *= inverse_diagonal
    for (moved, bent), (inverse, share) in zip(memory, reversed(shares), strict=True):
        q += (share - inverse * _dot(bent, q)) * moved
    return q


def _dot(a: Array, b: Array) -> Array:
    """Return the inner product of each problem's entries."""
    found: Array = np.einsum("ijk,ijk->k", a, b)
    return found


def _rounded(values: Array) -> Array:
    rounded = np.clip(values, -_LARGEST, _LARGEST)
    rounded *= _GRID
    np.rint(rounded, out=rounded)
    rounded /= _GRID
    return rounded

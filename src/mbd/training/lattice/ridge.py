"""Ridge from exact Gram matrices: any fold, any strengths, no second look at the rows.

With features x and targets y on the grid and Z = [1, x, y], every entry of G = ZᵀZ is an exact float64 sum, so G does
not depend on the order of rows, on threads or on blocks. Leaving a fold out is a difference of two such matrices, and
the matrix of some columns is a part of that of all.
For strengths λ (one for each block of columns):

    w = (XᵀX + n·diag(λ))⁻¹ Xᵀy  on centred X and y,   offset = ȳ − x̄ w
    Σ (y − x w − offset)² over a fold = Σ diag(vᵀ G v),   v = [offset, w, −1],   G that of the fold
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dposv

from mbd.blocks import Wide, in_blocks
from mbd.tensors import Array
from mbd.training.lattice.folds import fold_numbers

Strengths = tuple[float, ...]
"""log₁₀ of λ, for each block"""
Fit = tuple[Array, Array]
"""weights (d × t) and offset (t)"""
System = tuple[float, Array, Array, Array, Array]
"""n, x̄, ȳ, and of centred x and y: XᵀX and Xᵀy"""

_STEP = 0.5
_ALONE = tuple(np.arange(-2.5, 2.01, _STEP).tolist())
_SHIFTS = (-1.0, -0.5, 0.0, 0.5)
_MOVES = (0.5, -0.5, 1.0)
_STRONGEST = 3.5
_WORTH_A_MOVE = 0.9995
_ROUNDS = 2


class FoldedRidge:
    """Ridge of t targets on d features, whose columns come in `blocks`, from the Gram matrix G of each fold."""

    def __init__(self, grams: Sequence[Array], blocks: tuple[int, ...]) -> None:
        self.blocks, self._grams = blocks, grams
        self._gram: Array = np.sum(grams, axis=0)
        self._tried: dict[Strengths, tuple[float, list[Fit]]] = {}

    @classmethod
    def of(cls, features: Wide, targets: Array, folds: Array, blocks: tuple[int, ...]) -> "FoldedRidge":
        """Return the ridge of `targets` (n × t) on `features` (n × d)."""
        return cls(grams(features, targets, [folds == fold for fold in fold_numbers(folds)]), blocks)

    def leading(self, columns: int) -> "FoldedRidge":
        """Return the ridge on the first `columns` of each block, which takes a fraction of the time."""
        blocks = tuple(min(size, columns) for size in self.blocks)
        if blocks == self.blocks:
            return self
        inside = np.concatenate([np.arange(size) < columns for size in self.blocks])
        return FoldedRidge([with_columns(gram, inside) for gram in self._grams], blocks)

    def block(self, number: int) -> "FoldedRidge":
        """Return the ridge on one block alone."""
        inside = np.repeat(np.arange(len(self.blocks)) == number, self.blocks)
        return FoldedRidge([with_columns(gram, inside) for gram in self._grams], (self.blocks[number],))

    def fit(self, strengths: Strengths) -> Fit:
        """Return weights and offset from all rows."""
        return self._solve(self._centre(self._gram), strengths)

    def left_out(self, strengths: Strengths) -> list[Fit]:
        """Return, for each fold in order, the fit that left it out."""
        return self._try(strengths)[1]

    def error(self, strengths: Strengths) -> float:
        """Return the mean squared out-of-fold error."""
        return self._try(strengths)[0]

    def best_alone(self, choices: tuple[float, ...] = _ALONE) -> Strengths:
        """Return the best strength of a single block (or one for all)."""
        return min(((choice,) * len(self.blocks) for choice in choices), key=self.error)

    def best_from(self, start: Strengths) -> Strengths:
        """Return good strengths near `start`: a common shift first, then one block after the other."""
        best = min((tuple(s + shift for s in start) for shift in _SHIFTS), key=self.error)
        for _ in range(_ROUNDS):
            before = best
            for place in range(len(best)):
                for move in _MOVES:
                    moved = (*best[:place], best[place] + move, *best[place + 1 :])
                    if max(moved) <= _STRONGEST and self.error(moved) < _WORTH_A_MOVE * self.error(best):
                        best = moved
                        break
            if best == before:
                break
        return best

    def _try(self, strengths: Strengths) -> tuple[float, list[Fit]]:
        if strengths not in self._tried:
            fits = [self._solve(system, strengths) for system in self._others]
            squares = sum(_squares(gram, fit) for gram, fit in zip(self._grams, fits, strict=True))
            targets = len(self._gram) - 1 - sum(self.blocks)
            self._tried[strengths] = squares / (self._gram[0, 0] * targets), fits
        return self._tried[strengths]

    @cached_property
    def _others(self) -> list[System]:
        """The systems that leave one fold out, in order."""
        return [self._centre(self._gram - gram) for gram in self._grams]

    def _centre(self, gram: Array) -> System:
        n, width = gram[0, 0], 1 + sum(self.blocks)
        means, target_means = gram[0, 1:width] / n, gram[0, width:] / n
        left = gram[1:width, 1:width] - np.outer(means, gram[0, 1:width])
        right = gram[1:width, width:] - np.outer(gram[0, 1:width], target_means)
        return n, means, target_means, left, right

    def _solve(self, system: System, strengths: Strengths) -> Fit:
        n, means, target_means, left, right = system
        lower = left.T.copy(order="F")  # symmetric; LAPACK overwrites it
        lower[np.diag_indices(len(lower))] += n * np.repeat(10.0 ** np.array(strengths), self.blocks)
        _, weights, failed = dposv(lower, right, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the Gram matrix is not positive definite")
        return weights, target_means - means @ weights


def grams(features: Wide, targets: Array, groups: Sequence[Array]) -> list[Array]:
    """Return ZᵀZ of each group of rows (a mask)."""
    return [_gram(features, targets, np.flatnonzero(rows)) for rows in groups]


def with_columns(gram: Array, inside: Array) -> Array:
    """Return G with those of the features (a mask) that are inside."""
    kept = np.flatnonzero(np.pad(inside, (1, len(gram) - 1 - inside.size), constant_values=True))
    part: Array = gram[np.ix_(kept, kept)]
    return part


def _gram(features: Wide, targets: Array, rows: Array) -> Array:
    """Return ZᵀZ of some rows."""
    width = 1 + features.shape[1] + targets.shape[1]
    gram = np.zeros((width, width))
    for own in in_blocks(rows, width):
        z = np.hstack([np.ones((len(own), 1)), features[own], targets[own]])
        gram += z.T @ z
    return gram


def _squares(gram: Array, fit: Fit) -> float:
    """Return Σ (y − x w − offset)² over the rows of `gram` and all targets."""
    weights, offset = fit
    v = np.vstack([offset, weights, -np.eye(len(offset))])
    return float((v * (gram @ v)).sum())


def out_of_fold(features: Wide, folds: Array, fits: Sequence[Fit]) -> Array:
    """Return for each row the prediction of the fit that left its fold out."""
    predicted = np.empty((len(folds), fits[0][1].size))
    for fold, (weights, offset) in zip(fold_numbers(folds), fits, strict=True):
        for own in in_blocks(np.flatnonzero(folds == fold), features.shape[1]):
            predicted[own] = features[own] @ weights + offset
    return predicted

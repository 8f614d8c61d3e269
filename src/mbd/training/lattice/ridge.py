"""Ridge from exact Gram matrices: any fold, any strengths, no second look at the rows.

With features x and targets y on the grid and Z = [1, x, y], every entry of G = ZᵀZ is an exact float64 sum, so G does
not depend on the order of rows, on threads or on batching. Leaving a fold out is a difference of two such matrices.
For strengths λ (one for each block of columns):

    w = (XᵀX + n·diag(λ))⁻¹ Xᵀy  on centred X and y,   offset = ȳ − x̄ w
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from mbd.tensors import Array

Strengths = tuple[float, ...]
"""log₁₀ of λ, for each block"""

_STEP = 0.5
_ALONE = tuple(np.arange(-2.5, 2.01, _STEP).tolist())
_SHIFTS = (-1.0, -0.5, 0.0, 0.5)
_MOVES = (0.5, -0.5, 1.0)
_STRONGEST = 3.5
_WORTH_A_MOVE = 0.9995
_ROUNDS = 2


class FoldedRidge:
    """Ridge of `targets` (n × t) on `features` (n × d), whose columns come in `blocks`, with out-of-fold errors."""

    def __init__(self, features: Array, targets: Array, folds: Array, blocks: tuple[int, ...]) -> None:
        self.features, self.targets, self.blocks = features, targets, blocks
        self._rows = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
        z = np.hstack([np.ones((len(features), 1)), features, targets])
        self._grams = [z[rows].T @ z[rows] for rows in self._rows]
        self._gram = sum(self._grams)
        self._tried: dict[Strengths, tuple[float, Array]] = {}

    def fit(self, strengths: Strengths) -> tuple[Array, Array]:
        """Return weights and offset from all rows."""
        return self._solve(np.asarray(self._gram), strengths)

    def out_of_fold(self, strengths: Strengths) -> Array:
        """Return for each row the prediction of the fit that left its fold out."""
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

    def _try(self, strengths: Strengths) -> tuple[float, Array]:
        if strengths not in self._tried:
            predicted = np.empty_like(self.targets)
            for rows, gram in zip(self._rows, self._grams, strict=True):
                weights, offset = self._solve(self._gram - gram, strengths)
                predicted[rows] = self.features[rows] @ weights + offset
            self._tried[strengths] = float(((self.targets - predicted) ** 2).mean()), predicted
        return self._tried[strengths]

    def _solve(self, gram: Array, strengths: Strengths) -> tuple[Array, Array]:
        n, width = gram[0, 0], 1 + sum(self.blocks)
        sums, target_sums = gram[0, 1:width], gram[0, width:]
        left = gram[1:width, 1:width] - np.outer(sums, sums) / n
        left[np.diag_indices(width - 1)] += n * np.repeat(10.0 ** np.array(strengths), self.blocks)
        right = gram[1:width, width:] - np.outer(sums, target_sums) / n
        weights = cho_solve(cho_factor(left, overwrite_a=True, check_finite=False), right, check_finite=False)
        return weights, (target_sums - sums @ weights) / n

"""Ridge regression as a baseline: one linear map for each availability pattern.

With features standardised on the train rows, w = (XᵀX + λI)⁻¹Xᵀy, and the λ of least leave-one-out error. From the
eigendecomposition of the smaller of XᵀX and XXᵀ, every λ costs one product: the leave-one-out residual of row i is
(y_i − ŷ_i) / (1 − h_i) with h the diagonal of the hat matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mbd.blocks import Wide, in_blocks, moments, spans
from mbd.tensors import Array

LAMBDAS = 10.0 ** np.arange(-1, 6, 0.5)
DEVIATION_FLOOR = 1e-6
Decomposition = Callable[[Array], tuple[Array, Array]]
"""symmetric matrix → its eigenvalues and -vectors"""
_LEFT_OUT = 20_000
"""rows whose leave-one-out error chooses λ, at most"""


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
        predicted = np.empty((len(features), len(self.offset)))
        for rows in spans(*features.shape):
            predicted[rows] = ((features[rows] - self.mean) / self.scale) @ self.weights + self.offset
        return predicted


def fit_ridge(features: Wide, targets: Array, decompose: Decomposition = np.linalg.eigh) -> Ridge:
    """Fit `targets` (n × t) on `features` (n × d); `decompose` finds the eigenvectors if there are more columns."""
    return RidgeSums.of(features, targets).fit(decompose=decompose)


@dataclass(frozen=True)
class RidgeSums:
    """What ridge needs to know of its rows; some of the columns can be fitted alone without looking at all rows again.

    The rows are read in blocks. The leave-one-out error is that of every row, or of 20,000 evenly chosen ones.
    """

    features: Wide
    targets: Array
    mean: Array
    scale: Array

    @classmethod
    def of(cls, features: Wide, targets: Array) -> "RidgeSums":
        """Return the sums of `features` (n × d) and `targets` (n × t)."""
        features = np.asarray(features, np.float64) if isinstance(features, np.ndarray) else features
        mean, deviation = moments(features)
        return cls(features, targets, mean, np.maximum(deviation, DEVIATION_FLOOR))

    @property
    def wide(self) -> bool:
        """Whether there are more columns than rows."""
        return self.features.shape[1] > self.features.shape[0]

    def fit(self, columns: Array | None = None, decompose: Decomposition = np.linalg.eigh) -> Ridge:
        """Return the ridge on these columns, by default on all."""
        chosen = np.arange(self.features.shape[1]) if columns is None else columns
        if len(chosen) > len(self.targets):
            return self._fit_wide(chosen, decompose)
        whole = len(chosen) == self.features.shape[1]
        gram, cross = self._gram
        gram, cross = (gram, cross) if whole else (gram[np.ix_(chosen, chosen)], cross[chosen])
        values, vectors = np.linalg.eigh(gram)
        projected = vectors.T @ cross
        errors, values = np.zeros(len(LAMBDAS)), np.maximum(values, 0)
        shown = np.arange(0, len(self.targets), -(-len(self.targets) // _LEFT_OUT))
        for own in in_blocks(shown, self.features.shape[1]):  # all columns are read
            x = self._standardise(own)
            scores = (x if whole else x[:, chosen]) @ vectors
            errors += _left_out(scores, self.targets[own] - self.offset, values, projected, len(self.targets))
        strength = float(LAMBDAS[errors.argmin()])
        return self._ridge(chosen, vectors @ (projected / (values + strength)[:, None]), strength)

    def _fit_wide(self, chosen: Array, decompose: Decomposition) -> Ridge:
        x = self._standardise(slice(None))
        x = x if len(chosen) == self.features.shape[1] else x[:, chosen]
        weights, strength = fit_gram(decompose(x @ x.T), self.targets - self.offset)
        return self._ridge(chosen, x.T @ weights, strength)

    def _ridge(self, chosen: Array, weights: Array, strength: float) -> Ridge:
        return Ridge(self.mean[chosen], self.scale[chosen], weights, self.offset, strength)

    def _standardise(self, rows: Array | slice) -> Array:
        x = self.features[rows] - self.mean
        x /= self.scale
        return x

    @cached_property
    def offset(self) -> Array:
        """The mean of the targets."""
        mean: Array = self.targets.mean(0)
        return mean

    @cached_property
    def _gram(self) -> tuple[Array, Array]:
        """XᵀX and Xᵀy of standardised features."""
        rows, columns = self.features.shape
        gram, cross = np.zeros((columns, columns)), np.zeros((columns, self.targets.shape[1]))
        for own in spans(rows, columns):
            x = self._standardise(own)
            gram += x.T @ x
            cross += x.T @ (self.targets[own] - self.offset)
        return gram, cross


def fit_gram(decomposed: tuple[Array, Array], targets: Array) -> tuple[Array, float]:
    """Return α = (XXᵀ + λI)⁻¹y, so that w = Xᵀα, and λ, of eigenvalues and -vectors of XXᵀ and centred targets."""
    values, vectors = np.maximum(decomposed[0], 0), decomposed[1]
    targets = targets.astype(values.dtype, copy=False)
    # Left singular vectors times singular values (n × k).
    scores = vectors * np.sqrt(values)
    strength = float(LAMBDAS[_left_out(scores, targets, values, scores.T @ targets, len(targets)).argmin()])
    return vectors @ ((vectors.T @ targets) / (values + strength)[:, None]), strength


def _left_out(scores: Array, y: Array, values: Array, projected: Array, fitted: int) -> Array:
    """Return Σ of the squared leave-one-out residuals of some of the `fitted` rows, for each λ."""
    squared, errors = scores**2, np.zeros(len(LAMBDAS))
    for place, strength in enumerate(LAMBDAS.tolist()):
        shrink = 1 / (values + strength)
        leverage = squared @ shrink + 1 / fitted
        residual = (y - scores @ (shrink[:, None] * projected)) / np.maximum(1 - leverage, 1e-9)[:, None]
        errors[place] = (residual**2).sum()
    return errors

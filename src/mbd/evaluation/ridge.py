"""Ridge regression, and baselines by it on the rows that models are evaluated on.

With features standardised on the train rows, w = (XᵀX + λI)⁻¹Xᵀy, and the λ of least leave-one-out error. From the
eigendecomposition of the smaller of XᵀX and XXᵀ, every λ costs one product: the leave-one-out residual of row i is
(y_i − ŷ_i) / (1 − h_i) with h the diagonal of the hat matrix.

- :func:`ridge_baselines`: each modality alone and all together, what the summary of a data set shows;
- :class:`PatternRidge`: one map for each availability pattern, fitted on the train rows that have the whole pattern;
- :class:`ImputedRidge`: one map of all modalities, a missing one filled with zeros or with the train mean.

The last two predict from any subset of modalities.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mbd.blocks import Columns, Wide, in_blocks, moments, row_by_row, spans
from mbd.evaluation.metrics import task_metrics
from mbd.features.pooling import as_vectors
from mbd.features.rows import Collection, Rows
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


def ridge_baselines(collection: Collection) -> dict[str, dict[str, float]]:
    """Return the test metrics of ridge by modality and for `all`; rows without the modality are left out."""
    sets = {m: (m,) for m in collection.modalities} | {"all": tuple(collection.modalities)}
    ridge = PatternRidge(as_vectors(collection.splits["train"]), len(collection.classes))
    return {name: _baseline(collection, ridge, modalities) for name, modalities in sets.items()}


def _baseline(collection: Collection, ridge: "PatternRidge", modalities: tuple[str, ...]) -> dict[str, float]:
    test = as_vectors(collection.splits["test"])
    there = _having(test, modalities)
    if _having(ridge.train, modalities).sum() < 2 or not there.any():
        return {}
    outputs = ridge.predict({m: test.features[m][there] for m in modalities})
    return task_metrics(collection.task, test.labels[there], outputs)


@dataclass(frozen=True)
class PatternRidge:
    """Ridge for each availability pattern; the map of a pattern is fitted when it is first asked for."""

    train: Rows
    classes: int
    _fitted: dict[tuple[str, ...], Ridge] = field(default_factory=dict)

    def predict(self, features: Mapping[str, Array]) -> Array:
        """Return a score for each row (regression) or for each row and class, from all of these modalities."""
        pattern = tuple(m for m in self.train.features if m in features)
        if pattern not in self._fitted:
            self._fitted[pattern] = self._fit(pattern)
        outputs = self._fitted[pattern].predict(np.hstack([features[m] for m in pattern]))
        return outputs if self.classes else outputs[:, 0]

    def _fit(self, pattern: tuple[str, ...]) -> Ridge:
        """Fit the map of a pattern; one that train does not know gives the mean of the labels."""
        there, everything = _having(self.train, pattern), tuple(self.train.features)
        widths = {m: self.train.features[m].shape[1] for m in everything}
        if there.sum() < 2:
            mean, width = _targets(self.train.labels, self.classes).mean(0), sum(widths[m] for m in pattern)
            return Ridge(np.zeros(width), np.ones(width), np.zeros((width, len(mean))), mean, 0.0)
        complete = _having(self.train, everything)
        if pattern != everything and there.sum() == complete.sum() and not self._complete.wide:
            chosen = [np.full(width, m in pattern) for m, width in widths.items()]
            return self._complete.fit(np.flatnonzero(np.concatenate(chosen)))
        return self.complete if pattern == everything else self._sums(pattern).fit()

    @cached_property
    def complete(self) -> Ridge:
        """The map of all modalities, from the rows that have them all."""
        return self._complete.fit()

    @cached_property
    def _complete(self) -> RidgeSums:
        """The sums over the rows that have every modality."""
        return self._sums(tuple(self.train.features))

    def _sums(self, pattern: tuple[str, ...]) -> RidgeSums:
        there = np.flatnonzero(_having(self.train, pattern))
        columns = Columns(tuple(self.train.features[m] for m in pattern), there)
        return RidgeSums.of(columns, _targets(self.train.labels[there], self.classes))


@dataclass(frozen=True)
class ImputedRidge:
    """One ridge of all modalities, and what replaces a missing one."""

    fill: Mapping[str, Array]
    ridge: Ridge
    classes: int

    @classmethod
    def beside(cls, patterns: PatternRidge, *, with_mean: bool) -> "ImputedRidge":
        """Fit on the train rows of another baseline, with the train mean for missing inputs, or with zeros.

        Where no row lacks anything, the map is that of the other baseline.
        """
        train, classes = patterns.train, patterns.classes
        fill = {}
        for m, x in train.features.items():
            there = np.flatnonzero(train.available[m])
            mean = with_mean and len(there)
            fill[m] = row_by_row(Columns((x,), there)) / len(there) if mean else np.zeros(x.shape[1])
        known = patterns.complete if all(bits.all() for bits in train.available.values()) else None
        ridge = known or fit_ridge(_FilledColumns(train, fill), _targets(train.labels, classes))
        return cls(fill, ridge, classes)

    def predict(self, features: Mapping[str, Array]) -> Array:
        """Return a score for each row (regression) or for each row and class, from all of these modalities."""
        n = len(next(iter(features.values())))
        parts = [features.get(m, np.broadcast_to(values, (n, len(values)))) for m, values in self.fill.items()]
        outputs = self.ridge.predict(np.hstack(parts))
        return outputs if self.classes else outputs[:, 0]


@dataclass(frozen=True)
class _FilledColumns:
    """The features of rows side by side, with something in place of what a row lacks."""

    rows: Rows
    fill: Mapping[str, Array]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), sum(map(len, self.fill.values()))

    def __getitem__(self, rows: Array | slice) -> Array:
        index = np.arange(len(self.rows))[rows]
        parts = {m: Columns((x,), index)[:] for m, x in self.rows.features.items()}
        for m, values in parts.items():
            values[~self.rows.available[m][index]] = self.fill[m]
        return np.hstack(list(parts.values()))


def _targets(labels: Array, classes: int) -> Array:
    return np.eye(classes)[labels] if classes else labels[:, None].astype(np.float64)


def _having(rows: Rows, modalities: tuple[str, ...]) -> Array:
    there: Array = np.all([rows.available[m] for m in modalities], axis=0)
    return there

"""Ridge baselines on the rows that models are evaluated on.

- :func:`ridge_baselines`: each modality alone and all together, what the summary of a data set shows;
- :class:`PatternRidge`: one map for each availability pattern, fitted on the train rows that have the whole pattern;
- :class:`ImputedRidge`: one map of all modalities, a missing one filled with zeros or with the train mean.

The last two predict exactly as a model does: any subset of modalities, row by row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from mbd.evaluation.metrics import task_metrics
from mbd.evaluation.ridge import Ridge, fit_ridge
from mbd.features.pooling import as_vectors
from mbd.features.rows import Collection, Rows
from mbd.tensors import Array


def ridge_baselines(collection: Collection) -> dict[str, dict[str, float]]:
    """Return the test metrics of ridge by modality and for `all`; rows without the modality are left out."""
    sets = {m: (m,) for m in collection.modalities} | {"all": tuple(collection.modalities)}
    return {name: ridge_baseline(collection, modalities) for name, modalities in sets.items()}


def ridge_baseline(collection: Collection, modalities: tuple[str, ...]) -> dict[str, float]:
    """Return the test metrics of ridge on the rows that have all of `modalities`."""
    train, test = (as_vectors(collection.splits[split]) for split in ("train", "test"))
    there = _having(test, modalities)
    if _having(train, modalities).sum() < 2 or not there.any():
        return {}
    ridge = PatternRidge(train, len(collection.classes))
    outputs = ridge.predict({m: test.features[m][there] for m in modalities})
    return task_metrics(collection.task, test.labels[there], outputs)


@dataclass(frozen=True)
class PatternRidge:
    """Ridge for each availability pattern; the map of a pattern is fitted when it is first asked for."""

    train: Rows
    classes: int
    _fitted: dict[tuple[str, ...], Ridge | Array] = field(default_factory=dict)

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array] | None = None) -> Array:
        """Return a score for each row (regression) or for each row and class (classification)."""
        n = len(next(iter(features.values())))
        outputs = np.empty((n, self.classes or 1))
        for pattern, rows in _by_pattern(features, available, n):
            outputs[rows] = self._map(pattern, features, rows)
        return outputs if self.classes else outputs[:, 0]

    def _map(self, pattern: tuple[str, ...], features: Mapping[str, Array], rows: Array) -> Array:
        if pattern not in self._fitted:
            self._fitted[pattern] = self._fit(pattern)
        fitted = self._fitted[pattern]
        return fitted.predict(_side_by_side(features, pattern, rows)) if isinstance(fitted, Ridge) else fitted

    def _fit(self, pattern: tuple[str, ...]) -> Ridge | Array:
        """Fit the map of a pattern; one that train does not know gives the mean of the labels."""
        there, targets = _having(self.train, pattern), _targets(self.train.labels, self.classes)
        if not pattern or there.sum() < 2:
            mean: Array = targets.mean(0)
            return mean
        return fit_ridge(_side_by_side(self.train.features, pattern, there), targets[there])


@dataclass(frozen=True)
class ImputedRidge:
    """One ridge of all modalities, and what replaces a missing one."""

    fill: Mapping[str, Array]
    ridge: Ridge
    classes: int

    @classmethod
    def fit(cls, train: Rows, classes: int, *, with_mean: bool) -> "ImputedRidge":
        """Fit on all train rows, with the train mean of a modality for its missing inputs, or with zeros."""
        fill = {
            m: x[train.available[m]].mean(0, dtype=np.float64)
            if with_mean and train.available[m].any()
            else np.zeros(x.shape[1])
            for m, x in train.features.items()
        }
        inputs = _filled(train.features, train.available, fill, len(train))
        return cls(fill, fit_ridge(inputs, _targets(train.labels, classes)), classes)

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array] | None = None) -> Array:
        """Return a score for each row (regression) or for each row and class (classification)."""
        n = len(next(iter(features.values())))
        outputs = self.ridge.predict(_filled(features, available, self.fill, n))
        return outputs if self.classes else outputs[:, 0]


def _targets(labels: Array, classes: int) -> Array:
    return np.eye(classes)[labels] if classes else labels[:, None].astype(np.float64)


def _having(rows: Rows, modalities: tuple[str, ...]) -> Array:
    there: Array = np.all([rows.available[m] for m in modalities], axis=0)
    return there


def _side_by_side(features: Mapping[str, Array], modalities: tuple[str, ...], rows: Array) -> Array:
    return np.hstack([features[m][rows] for m in modalities])


def _by_pattern(
    features: Mapping[str, Array], available: Mapping[str, Array] | None, n: int
) -> Iterator[tuple[tuple[str, ...], Array]]:
    """Yield each availability pattern that occurs, with the rows that have it."""
    there = np.stack([_bits(m, available, n) for m in features], axis=1)
    patterns, which = np.unique(there, axis=0, return_inverse=True)
    for k, pattern in enumerate(patterns):
        yield tuple(m for m, bit in zip(features, pattern, strict=True) if bit), which.ravel() == k


def _filled(
    features: Mapping[str, Array], available: Mapping[str, Array] | None, fill: Mapping[str, Array], n: int
) -> Array:
    parts = [
        np.where(_bits(m, available, n)[:, None], features[m], values)
        if m in features
        else np.broadcast_to(values, (n, len(values)))
        for m, values in fill.items()
    ]
    return np.hstack(parts)


def _bits(modality: str, available: Mapping[str, Array] | None, n: int) -> Array:
    return np.broadcast_to(np.asarray((available or {}).get(modality, True), bool), (n,))

"""Inspection of a backbone that has generators and property embeddings.

- X̂^m, each modality of the test rows as generated from the others, as a t-SNE map, with the silhouette of the sentiment
  in the space before the map (positive if rows of one class lie closer to each other than to those of another);
- how far μ̄^m, the invariant mean that P^m was aligned with, moves when the input is corrupted.

A backbone that lacks these parts, or was trained without them, is skipped.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from mbd.errors import MissingExtraError
from mbd.evaluation.regimes import EvaluationPlan
from mbd.features.rows import Rows
from mbd.model.predictor import Model
from mbd.randomness import stream, stream_seed
from mbd.tensors import Array

_LARGEST_MAP = 500
_ITERATIONS = 500
_DIGITS = 4
_SMALLEST_DEVIATION = 1e-6


@runtime_checkable
class Inside(Protocol):
    """A backbone that generates modalities and has property embeddings."""

    def reconstruct(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return X̂^m of every modality; empty without generators."""

    def property_embeddings(self) -> dict[str, Array]:
        """Return P^m of every modality; empty without the property pathway."""

    def invariant_mean(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return μ̄^m of every modality that some row has."""


def standardised_reconstructions(model: Model, rows: Rows) -> Array | None:
    """Return the standardised reconstructions of all modalities side by side, or None if there are none to distinguish.

    The last modality that is left is generated from nothing: the same for every row.
    """
    if not isinstance(model.backbone, Inside):
        return None
    parts = model.backbone.reconstruct(*_inputs(model, rows))
    if not parts:
        return None
    matrix = np.hstack(list(parts.values())).astype(np.float64)
    deviation = matrix.std(0)
    if deviation.max() < _SMALLEST_DEVIATION:
        return None
    standardised: Array = (matrix - matrix.mean(0)) / np.maximum(deviation, _SMALLEST_DEVIATION)
    return standardised


def sentiment_classes(plan: EvaluationPlan, classes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """Return the class of each row and the names of the classes: for regression, the sign of the label."""
    if plan.task == "classification":
        return plan.rows.labels, classes
    return (plan.rows.labels >= 0).astype(np.int64), ("negative", "non-negative")


def sample_for_map(n: int, seed: int) -> Array:
    """Return the positions of at most so many rows as a map can show."""
    return np.sort(stream(seed, "evaluation", "map").permutation(n)[:_LARGEST_MAP])


def map_of(matrix: Array, labels: Array, seed: int) -> tuple[Array, float]:
    """Return the t-SNE map of `matrix` (n × 2), and the silhouette of `labels` in `matrix` itself."""
    try:
        from sklearn.manifold import TSNE  # noqa: PLC0415 -- slow to import, and part of an extra
        from sklearn.metrics import silhouette_score  # noqa: PLC0415
        from threadpoolctl import threadpool_limits  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("t-SNE", "train", "scikit-learn") from error
    n = len(matrix)
    state = stream_seed(seed, "evaluation", "t-SNE") % 2**32
    with threadpool_limits(1):  # sums by several threads differ in their last bits, which t-SNE blows up
        tsne = TSNE(perplexity=min(30.0, (n - 1) / 3), init="pca", max_iter=_ITERATIONS, random_state=state)
        points: Array = tsne.fit_transform(matrix)
        silhouette = float(silhouette_score(matrix, labels)) if 1 < len(np.unique(labels)) < n else 0.0
    return points, silhouette


def property_drift(model: Model, plan: EvaluationPlan) -> dict[str, dict[str, float]]:
    """Return for each modality the mean squared deviations between P^m and μ̄^m of clean and of corrupted input."""
    if not isinstance(model.backbone, Inside):
        return {}
    p = model.backbone.property_embeddings()
    clean = model.backbone.invariant_mean(*_inputs(model, plan.rows))
    corrupted = model.backbone.invariant_mean(*_inputs(model, plan.damaged))
    return {
        m: {
            "clean_to_corrupted": _mse(clean[m], corrupted[m]),
            "property_to_clean": _mse(p[m], clean[m]),
            "property_to_corrupted": _mse(p[m], corrupted[m]),
        }
        for m in plan.modalities
        if m in p and m in clean
    }


def _inputs(model: Model, rows: Rows) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return features and availability for every modality the model is built for; one that `rows` lacks is missing."""
    n, built_for = len(rows), model.record.modalities
    features = {m: rows.features.get(m, np.zeros((n, d), np.float32)) for m, d in built_for.items()}
    return features, {m: rows.available.get(m, np.zeros(n, bool)) for m in built_for}


def _mse(a: Array, b: Array) -> float:
    return float(f"{np.mean((a.astype(np.float64) - b) ** 2):.{_DIGITS}g}")

"""Metrics exactly as this field computes them.

Regression (labels in −3..3):

- Acc2 and F1 two ways: negative / non-negative on all rows (`acc2`, `f1`), and negative / positive without the
  rows whose label is zero (`acc2_nonzero`, `f1_nonzero`); F1 is weighted by class support, truth first.
- Acc7, Acc5: agreement after clipping to ±3, ±2 and rounding half to even.
- MAE and Pearson's r on unclipped values; r of a constant is undefined and given as 0.

Classification: WA (share of right rows), UA (mean recall over the classes present), weighted F1, and ECE: how far the
greatest probability is from the share of right rows, on average over 15 bins of it, weighted by their rows. Scores that
are no probabilities (those of ridge) are clipped at zero and normalised for it.
"""

import numpy as np

from mbd.formats.features import Task
from mbd.tensors import Array

ACCURACIES: dict[Task, tuple[str, ...]] = {"regression": ("acc2", "f1", "acc7"), "classification": ("wa", "ua", "f1")}
"""what tables show for each task; the first is the one that models are compared by"""
ERRORS: dict[Task, tuple[str, ...]] = {"regression": ("mae", "corr"), "classification": ("ece",)}
LOWER_IS_BETTER = frozenset({"mae", "ece"})
TITLES = {
    "acc2": "Acc2",
    "f1": "F1",
    "acc2_nonzero": "Acc2 (no zeros)",
    "f1_nonzero": "F1 (no zeros)",
    "acc7": "Acc7",
    "acc5": "Acc5",
    "mae": "MAE",
    "corr": "Corr",
    "wa": "WA",
    "ua": "UA",
    "ece": "ECE",
}
CALIBRATION_BINS = 15


def digits_of(metric: str) -> int:
    """Return with how many decimals a metric is shown to people."""
    return 3 if metric in ("mae", "corr") else 1


def task_metrics(task: Task, truth: Array, outputs: Array) -> dict[str, float]:
    """Return the metrics of `task` for what a model gives: scores (n), or one column for each class."""
    if task == "classification":
        return classification_metrics(truth, outputs.argmax(1)) | {"ece": calibration_error(truth, outputs)}
    return regression_metrics(truth, outputs)


def regression_metrics(truth: Array, prediction: Array) -> dict[str, float]:
    """Return every regression metric; shares are in percent."""
    truth, prediction = np.asarray(truth, np.float64), np.asarray(prediction, np.float64)
    nonzero = truth != 0
    return {
        "acc2": _percent_equal(truth >= 0, prediction >= 0),
        "f1": weighted_f1(truth >= 0, prediction >= 0),
        "acc2_nonzero": _percent_equal(truth[nonzero] > 0, prediction[nonzero] > 0),
        "f1_nonzero": weighted_f1(truth[nonzero] > 0, prediction[nonzero] > 0),
        "acc7": _percent_equal(_rounded(truth, 3), _rounded(prediction, 3)),
        "acc5": _percent_equal(_rounded(truth, 2), _rounded(prediction, 2)),
        "mae": float(np.abs(truth - prediction).mean()),
        "corr": pearson(truth, prediction),
    }


def classification_metrics(truth: Array, prediction: Array) -> dict[str, float]:
    """Return the metrics of predicted classes, in percent."""
    classes = np.unique(truth)
    recalls = [_percent_equal(prediction[truth == c], np.full((truth == c).sum(), c)) for c in classes]
    return {
        "wa": _percent_equal(truth, prediction),
        "ua": float(np.mean(recalls)),
        "f1": weighted_f1(truth, prediction),
    }


def calibration_error(truth: Array, outputs: Array) -> float:
    """Return the ECE of probabilities (n × classes), in percent."""
    gaps = np.bincount(*calibration_gaps(truth, outputs), minlength=CALIBRATION_BINS)
    return float(100 * np.abs(gaps).sum() / max(len(truth), 1))


def calibration_gaps(truth: Array, outputs: Array) -> tuple[Array, Array]:
    """Return for each row the bin of its greatest probability, and how far that is below being right (1 or 0)."""
    positive = np.maximum(np.asarray(outputs, np.float64), 0)
    total = positive.sum(1, keepdims=True)
    probabilities = np.where(total > 0, positive / np.where(total > 0, total, 1), 1 / outputs.shape[1])
    confidence, right = probabilities.max(1), outputs.argmax(1) == truth
    place = np.minimum((confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    return place, right - confidence


def weighted_f1(truth: Array, prediction: Array) -> float:
    """Return the mean of the classes' F1, weighted by how often each class is true, in percent."""
    if not len(truth):
        return 0.0
    classes = np.unique(np.concatenate([truth, prediction]))
    true, predicted = truth[:, None] == classes, prediction[:, None] == classes
    hits, support, chosen = (true & predicted).sum(0), true.sum(0), predicted.sum(0)
    f1 = 2 * hits / (support + chosen)
    return float(100 * (f1 * support).sum() / support.sum())


def pearson(truth: Array, prediction: Array) -> float:
    """Return Pearson's r, or 0 where one side is constant."""
    a, b = truth - truth.mean(), prediction - prediction.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else 0.0


def _rounded(values: Array, bound: int) -> Array:
    return np.round(np.clip(values, -bound, bound))


def _percent_equal(a: Array, b: Array) -> float:
    return float(100 * (a == b).mean()) if len(a) else 0.0

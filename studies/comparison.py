"""Metrics of several methods on the same test rows, with intervals over groups and paired differences.

Every metric here is a function of sums over rows: MAE of errors and rows, weighted F1 of hits, true and answered rows
of each class. So :func:`row_values` keeps what is summed, a resample of whole groups is one product, and the same
resamples serve all methods: 95 % intervals of a metric and of the difference of two methods are percentiles over them.

Columns are all modalities (full), the average of the fixed patterns (FIX) and that of the missing rates (MR).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from mbd.evaluation.metrics import CALIBRATION_BINS, LOWER_IS_BETTER, TITLES, calibration_gaps
from mbd.evaluation.regimes import EvaluationPlan, plan_evaluation, regime_outputs
from mbd.features.rows import Rows
from mbd.formats.features import Task
from mbd.params import load_params
from mbd.randomness import stream
from mbd.tensors import Array

Predictor = Callable[[Mapping[str, Array]], Array]
Column = tuple[str, str]
"""a regime or average, and a metric"""
Values = dict[Column, Array]
"""what is summed for each row (n × regimes × sums)"""

KINDS = {"full": "full", "fixed": "FIX", "rate": "MR"}
RATES = (0.1, 0.3, 0.5, 0.7)
_METRICS: dict[Task, tuple[str, ...]] = {"regression": ("acc2", "mae"), "classification": ("wa", "ua", "f1")}
_ONCE: dict[Task, tuple[str, ...]] = {"regression": (), "classification": ("ece",)}  # with all modalities alone
_RESAMPLES = 1000


def columns(task: Task, found: Collection[Column]) -> list[Column]:
    """Return the columns of a table, as far as they were measured."""
    every = [(column, metric) for column in KINDS.values() for metric in _METRICS[task]]
    return [column for column in [*every, *(("full", metric) for metric in _ONCE[task])] if column in found]


def title(column: Column) -> str:
    """Return the head of a column."""
    return f"{column[0]} {TITLES[column[1]]}"


def planned(rows: Rows, task: Task) -> EvaluationPlan:
    """Return the regimes in which methods are compared on `rows`."""
    return plan_evaluation(rows, task, load_params(None).evaluation.model_copy(update={"missing_rates": RATES}))


def row_values(predict: Predictor, plan: EvaluationPlan) -> Values:
    """Return what is summed for each row, in the regimes of each kind; zero where a row shows nothing."""
    found: dict[Column, list[Array]] = {}
    for regime, outputs in zip(plan.regimes, regime_outputs(predict, plan), strict=True):
        shown = np.any(regime.shown, axis=1)
        summed = _of_regression if plan.task == "regression" else _of_classes
        for metric, values in summed(plan.rows.labels[shown], outputs[shown]).items():
            whole = np.zeros((len(shown), values.shape[1]))
            whole[shown] = values
            found.setdefault((KINDS[regime.kind], metric), []).append(whole)
    return {column: np.stack(parts, axis=1) for column, parts in found.items()}


def _of_regression(truth: Array, outputs: Array) -> dict[str, Array]:
    parts = {"acc2": 100.0 * ((outputs >= 0) == (truth >= 0)), "mae": np.abs(outputs - truth)}
    return {metric: np.stack([part, np.ones(len(truth))], axis=1) for metric, part in parts.items()}


def _of_classes(truth: Array, outputs: Array) -> dict[str, Array]:
    names = np.arange(outputs.shape[1])
    true, answered = truth[:, None] == names, outputs.argmax(1)[:, None] == names
    counts = np.hstack([true & answered, true, answered]).astype(np.float64)
    bins, gap = calibration_gaps(truth, outputs)
    gaps = np.zeros((len(truth), CALIBRATION_BINS + 1))
    gaps[np.arange(len(truth)), bins] = 100 * gap
    gaps[:, -1] = 1
    if np.isin(outputs, (0, 1)).all():
        gaps[:] = np.nan  # answers alone, without probabilities
    return {"wa": counts, "ua": counts, "f1": counts, "ece": gaps}


def _mean(sums: Array) -> Array:
    found: Array = sums[..., 0] / sums[..., 1]
    return found


def _of_counts(share: Callable[[Array, Array, Array], Array]) -> Callable[[Array], Array]:
    return lambda sums: 100 * share(*np.split(sums, 3, axis=-1))


def _recall(hits: Array, true: Array, _: Array) -> Array:
    found: Array = (hits / np.maximum(true, 1)).sum(-1) / np.count_nonzero(true, axis=-1)
    return found


def _f1(hits: Array, true: Array, answered: Array) -> Array:
    found: Array = (2 * hits / np.maximum(true + answered, 1) * true).sum(-1) / true.sum(-1)
    return found


def _ece(sums: Array) -> Array:
    found: Array = np.abs(sums[..., :-1]).sum(-1) / sums[..., -1]
    return found


_OF_SUMS: dict[str, Callable[[Array], Array]] = {
    "acc2": _mean,
    "mae": _mean,
    "wa": _of_counts(lambda hits, true, _: hits.sum(-1) / true.sum(-1)),
    "ua": _of_counts(_recall),
    "f1": _of_counts(_f1),
    "ece": _ece,
}


def resampled(values: Array, groups: Array, metric: str) -> Array:
    """Return a metric of all rows, then that of each resample of whole groups."""
    names, member = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), *values.shape[1:]))
    np.add.at(sums, member, values)
    drawn = stream(0, "peers", "groups").integers(0, len(names), (_RESAMPLES, len(names)))
    drawn += len(names) * np.arange(_RESAMPLES)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
    totals = np.vstack([np.ones(len(names)), counts]) @ sums.reshape(len(names), -1)
    found: Array = _OF_SUMS[metric](totals.reshape(-1, *values.shape[1:])).mean(1)
    return found


@dataclass(frozen=True)
class Estimate:
    """A metric with its interval, and whether it is better or worse than another method's beyond noise."""

    value: float
    low: float
    high: float
    mark: str
    digits: int

    def __str__(self) -> str:
        """Return the cell of a table."""
        if np.isnan(self.value):
            return "–"
        value, low, high = (f"{number:.{self.digits}f}" for number in (self.value, self.low, self.high))
        return f"{value} ({low} … {high}){self.mark}"


def estimate(values: Array, beside: Array, groups: Array, metric: str) -> Estimate:
    """Return a metric beside that of another method on the same rows."""
    own = resampled(values, groups, metric)
    gained = (own - resampled(beside, groups, metric))[1:] * (-1 if metric in LOWER_IS_BETTER else 1)
    low, high = np.percentile(own[1:], [2.5, 97.5])
    least, most = np.percentile(gained, [2.5, 97.5])
    mark = " ▲" if least > 0 else " ▼" if most < 0 else ""
    return Estimate(float(own[0]), float(low), float(high), mark, 3 if metric == "mae" else 1)

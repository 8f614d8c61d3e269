"""The regimes under which a model is evaluated, and its metrics in each.

- *full*: every row shows what it has;
- *fixed patterns*: only the modalities of one set, for every non-empty proper set; their average is FIX;
- *missing rates* η: a share η of all (row, modality) pairs is missing at random, at least one left for each row; their
  average is MR. No rate above (M − 1)/M is possible: the first one above it is taken as that limit (η = 0.7 of
  three modalities is 0.667, as in other work of the field), further ones, and rates below what the rows lack of
  themselves, are left out;
- each of them again with a share of the rows *corrupted*.

A row never shows more than it has: its own availability is cut with the regime's mask, and a row that is left with
nothing is left out of that regime.

Regimes differ in masks only, and a row's prediction depends on nothing but the modalities it shows. So each row is
predicted once for each pattern it shows anywhere (grouped by pattern), whatever the number of regimes, and only damaged
rows are predicted again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from mbd.errors import DataError
from mbd.evaluation.metrics import task_metrics
from mbd.features.availability import fixed_patterns, missing_rate_mask, reachable_rates
from mbd.features.corruption import corrupt
from mbd.features.rows import Rows
from mbd.formats.features import Task
from mbd.params.learning import EvaluationSettings
from mbd.tensors import Array

Predictor = Callable[[Mapping[str, Array]], Array]
"""takes the matrices of the modalities that are there; gives a score for each row, or for each row and class"""

Kind = Literal["full", "fixed", "rate"]
AVERAGES: dict[str, Kind] = {"FIX": "fixed", "MR": "rate"}


class Condition(NamedTuple):
    """A regime (or an average of regimes), on clean or on corrupted rows."""

    regime: str
    corrupted: bool = False


Scores = dict[Condition, dict[str, float]]


@dataclass(frozen=True)
class Regime:
    """Which modalities each row shows."""

    name: str
    kind: Kind
    shown: Array
    """n × M; a column for each modality"""
    rate: float | None = None
    """the share that is really missing, if the regime is a missing rate"""

    @property
    def rows(self) -> int:
        """How many rows show anything."""
        return int(self.shown.any(1).sum())


@dataclass(frozen=True)
class EvaluationPlan:
    """The rows and regimes that all methods of one evaluation share."""

    task: Task
    rows: Rows
    damaged: Rows
    regimes: tuple[Regime, ...]
    rates_left_out: tuple[float, ...]

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that may be shown."""
        return tuple(self.rows.features)


def plan_evaluation(rows: Rows, task: Task, params: EvaluationSettings) -> EvaluationPlan:
    """Draw the masks and the damage for `rows`; a row without any modality is left out of all regimes."""
    rows = rows.take(np.any(list(rows.available.values()), axis=0))
    modalities = tuple(rows.features)
    if not len(rows):
        raise DataError("no row has any of the evaluated modalities", value=", ".join(modalities))
    own = _matrix(rows.available, modalities)
    regimes = [Regime("full", "full", own)]
    for pattern in fixed_patterns(modalities):
        if pattern != modalities:
            regimes.append(Regime("+".join(pattern), "fixed", own & np.isin(modalities, pattern)))
    reached = _reached_rates(params.missing_rates, *reachable_rates(rows.available))
    for asked, rate in reached.items():
        mask = missing_rate_mask(rows.available, rate, params.seed)
        regimes.append(Regime(f"η={asked:g}", "rate", _matrix(mask, modalities), rate))
    return EvaluationPlan(
        task,
        rows,
        corrupt(rows, params.corruption, params.seed),
        tuple(regime for regime in regimes if regime.rows),
        tuple(rate for rate in params.missing_rates if rate not in reached),
    )


def _reached_rates(asked: tuple[float, ...], low: float, high: float) -> dict[float, float]:
    """Return the rates that can be asked for, each with the rate it comes to."""
    reached = {rate: rate for rate in asked if low <= rate <= high}
    beyond = [rate for rate in asked if rate > high]
    if beyond and low < high and high not in reached.values():
        reached[min(beyond)] = high
    return reached


def evaluate_predictor(predict: Predictor, plan: EvaluationPlan) -> Scores:
    """Return the metrics of a predictor in every regime, clean and corrupted, and their averages."""
    codes = np.stack([_codes(regime.shown) for regime in plan.regimes])
    clean = _outputs(predict, plan.rows, codes)
    features, damaged = plan.rows.features, plan.damaged.features
    changed = np.any([(x != damaged[m]).reshape(len(x), -1).any(1) for m, x in features.items()], axis=0)
    corrupted = clean.copy()
    if changed.any():
        corrupted[:, changed] = _outputs(predict, plan.damaged.take(changed), codes[:, changed])
    scores: Scores = {}
    for is_corrupted, outputs in ((False, clean), (True, corrupted)):
        for regime, code, output in zip(plan.regimes, codes, outputs, strict=True):
            metrics = task_metrics(plan.task, plan.rows.labels[code > 0], output[code > 0])
            scores[Condition(regime.name, is_corrupted)] = metrics
    return scores | _averages(scores, plan.regimes)


def regime_outputs(predict: Predictor, plan: EvaluationPlan) -> Array:
    """Return what a predictor gives for each regime and clean row (k × n …), NaN where a row shows nothing."""
    return _outputs(predict, plan.rows, np.stack([_codes(regime.shown) for regime in plan.regimes]))


def _averages(scores: Scores, regimes: tuple[Regime, ...]) -> Scores:
    averages: Scores = {}
    for name, kind in AVERAGES.items():
        for corrupted in (False, True):
            parts = [scores[Condition(regime.name, corrupted)] for regime in regimes if regime.kind == kind]
            if parts:
                means = {metric: float(np.mean([part[metric] for part in parts])) for metric in parts[0]}
                averages[Condition(name, corrupted)] = means
    return averages


def _outputs(predict: Predictor, rows: Rows, codes: Array) -> Array:
    """Return what `predict` gives for each regime and row (k × n …); `codes` says what a row shows, 0 for nothing."""
    outputs: Array | None = None
    for code in np.unique(codes[codes > 0]):
        chosen = codes == code
        needed = chosen.any(0)
        shown = rows.inputs(m for bit, m in enumerate(rows.features) if int(code) >> bit & 1)
        predicted = predict({name: x[needed] for name, x in shown.items()})
        if outputs is None:
            outputs = np.full((*codes.shape, *predicted.shape[1:]), np.nan)
        place = np.cumsum(needed) - 1
        outputs[chosen] = predicted[place[np.nonzero(chosen)[1]]]
    return np.full(codes.shape, np.nan) if outputs is None else outputs


def _codes(shown: Array) -> Array:
    codes: Array = shown @ (1 << np.arange(shown.shape[1], dtype=np.int64))
    return codes


def _matrix(bits: Mapping[str, Array], modalities: tuple[str, ...]) -> Array:
    return np.stack([np.asarray(bits[m], bool) for m in modalities], axis=1)

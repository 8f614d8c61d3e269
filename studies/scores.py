"""What an evaluation measured, read back seed by seed."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mbd.evaluation.metrics import ACCURACIES, ERRORS, LOWER_IS_BETTER
from mbd.evaluation.regimes import Condition, Kind
from mbd.evaluation.regimes import Scores as Run
from mbd.evaluation.results import Comparison, EvaluatedMethod, Spread, compare, spread
from mbd.formats.features import Task
from studies.drawing import Series

JOINT = "joint"
"""the backbone that is the paper's"""
_PLACES = ("method", "seed", "kind", "regime", "eta", "corrupted", "rows")


class ShownScore(NamedTuple):
    """A regime: which modalities the rows of an evaluation showed."""

    name: str
    kind: str
    eta: float | None


@dataclass(frozen=True)
class Scores:
    """The methods of an evaluation, with every seed of each."""

    task: Task
    modalities: tuple[str, ...]
    rows: int
    notes: tuple[str, ...]
    regimes: tuple[ShownScore, ...]
    methods: tuple[EvaluatedMethod, ...]

    @property
    def shown(self) -> tuple[str, ...]:
        """The accuracies of the task; the first is the one that methods are compared by."""
        return ACCURACIES[self.task]

    @property
    def primary(self) -> str:
        """The metric that methods are compared by."""
        return self.shown[0]

    @property
    def all_metrics(self) -> tuple[str, ...]:
        """Accuracies and errors."""
        return self.shown + ERRORS[self.task]

    @property
    def ours(self) -> EvaluatedMethod:
        """The paper's model, or the first one if it was not measured."""
        return self.method(JOINT) or self.methods[0]

    @property
    def others(self) -> tuple[EvaluatedMethod, ...]:
        """Every other method."""
        return tuple(method for method in self.methods if method is not self.ours)

    def names(self, kind: Kind) -> list[str]:
        """Return the regimes of one kind."""
        return [regime.name for regime in self.regimes if regime.kind == kind]

    def has(self, regime: str) -> bool:
        """Return whether there is such a regime, or average of regimes."""
        return any(regime == known.name for known in self.regimes)

    def method(self, name: str) -> EvaluatedMethod | None:
        """Return a method, if it was measured."""
        return next((method for method in self.methods if method.name == name), None)

    def best_other(self, regime: str, metric: str) -> EvaluatedMethod:
        """Return the best method beside ours in one regime."""
        sign = -1 if metric in LOWER_IS_BETTER else 1
        return max(self.others, key=lambda method: sign * mean(method, regime, metric))

    def lead(self, regime: str, metric: str) -> Comparison:
        """Compare ours with the best other method, over seeds."""
        return difference(self.ours, self.best_other(regime, metric), regime, metric)

    def series(self, regimes: Sequence[str], metric: str) -> list[Series]:
        """Return every method for drawing: a metric in each regime."""
        return [
            Series(
                method.name,
                [spread_of(method, regime, metric) for regime in regimes],
                "baseline" if method.baseline else "model",
            )
            for method in self.methods
        ]


def read_scores(folder: Path) -> Scores:
    """Read what `mbd evaluate` wrote."""
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    with (folder / "regimes.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    runs: dict[str, dict[str, Run]] = {}
    regimes: dict[str, ShownScore] = {}
    for line in lines:
        name, eta = line["regime"], line["eta"]
        run = runs.setdefault(line["method"], {}).setdefault(line["seed"], {})
        run[Condition(name, line["corrupted"] == "true")] = {
            metric: float(value) for metric, value in line.items() if metric not in _PLACES
        }
        regimes.setdefault(name, ShownScore(name, line["kind"], float(eta) if eta else None))
    return Scores(
        task=metrics["task"],
        modalities=tuple(metrics["modalities"]),
        rows=metrics["rows"],
        notes=tuple(metrics["notes"]),
        regimes=tuple(regimes.values()),
        methods=tuple(EvaluatedMethod(name, found, baseline=set(found) == {""}) for name, found in runs.items()),
    )


def mean(method: EvaluatedMethod, regime: str, metric: str, *, corrupted: bool = False) -> float:
    """Return the mean of a metric over seeds."""
    return spread_of(method, regime, metric, corrupted=corrupted).mean


def spread_of(method: EvaluatedMethod, regime: str, metric: str, *, corrupted: bool = False) -> Spread:
    """Return mean and deviation of a metric over seeds."""
    found = method.spread(Condition(regime, corrupted), metric)
    if found is None:
        raise ValueError(f"{method.name} was not measured in {regime}")
    return found


def loss_by_corruption(method: EvaluatedMethod, regime: str, metric: str) -> Spread:
    """Return how many points a metric loses by corruption, paired by seed."""
    return _gap(method.values(Condition(regime), metric), method.values(Condition(regime, True), metric))


def gap(ours: EvaluatedMethod, theirs: EvaluatedMethod, regime: str, metric: str) -> Spread:
    """Return ours − theirs, paired by seed."""
    return _gap(ours.values(Condition(regime), metric), theirs.values(Condition(regime), metric))


def _gap(a: Mapping[str, float], b: Mapping[str, float]) -> Spread:
    return spread([a[seed] - b[seed] for seed in a if seed in b])


def difference(ours: EvaluatedMethod, theirs: EvaluatedMethod, regime: str, metric: str) -> Comparison:
    """Compare two methods over seeds; a baseline is paired with every seed."""
    found = compare(ours, theirs, Condition(regime), metric)
    if found is None:
        raise ValueError(f"{ours.name} and {theirs.name} have no seed in common in {regime}")
    return found

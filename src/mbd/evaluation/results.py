"""What an evaluation found: methods, their runs, and the same for machines.

A method is one way to make a model, with one run for each seed; a baseline has a single run. Everything that tables,
figures and files show is read from here.

Seeds of one method give mean ± deviation, the deviation with n − 1 in the denominator, and two methods the paired
two-tailed t-test over seeds. Where these have no value they are null, never a made-up number:

- one seed has no deviation, and fewer than two pairs have no t-test;
- pairs without any difference have t = 0 and p = 1;
- pairs whose difference is always the same, and not zero, have neither t nor p: the formula gives p = 0, which three
  seeds that happen to agree on a counted metric do not show.

In the report as Markdown, cells are laid out as in the paper: `Acc2 / F1 / Acc7`, the deviation over seeds beside the
first. The best method of a line is bold.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mbd.evaluation.metrics import ACCURACIES, ERRORS, LOWER_IS_BETTER, TITLES, digits_of
from mbd.evaluation.regimes import AVERAGES, Condition, EvaluationPlan, Regime, Scores
from mbd.markdown import escape, table


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    mean: float
    deviation: float | None
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """What the paired two-tailed t-test says of `ours − theirs`."""

    difference: float
    t: float | None
    p: float | None
    pairs: int


def spread(values: Sequence[float]) -> Spread:
    """Return mean and deviation of one value for each seed."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), deviation, len(values))


def paired_t_test(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Compare two methods seed by seed; the two sequences have the same order of seeds."""
    differences = np.subtract(ours, theirs, dtype=np.float64)
    if len(differences) != len(ours) or len(differences) != len(theirs):
        raise ValueError(f"{len(ours)} and {len(theirs)} values are no pairs")
    mean, pairs = float(differences.mean()), len(differences)
    if pairs < 2:
        return Comparison(mean, None, None, pairs)
    if not differences.any():
        return Comparison(0.0, 0.0, 1.0, pairs)
    if np.ptp(differences) <= 1e-12 * np.abs(differences).max():
        return Comparison(mean, None, None, pairs)
    from scipy.stats import ttest_rel  # noqa: PLC0415 -- slow to import, and part of an extra

    result = ttest_rel(ours, theirs)
    return Comparison(mean, float(result.statistic), float(result.pvalue), pairs)


HEADLINES = ("full", *AVERAGES)
_DIGITS = 4


@dataclass(frozen=True)
class EvaluatedMethod:
    """A model with its seeds, or a baseline."""

    name: str
    runs: Mapping[str, Scores]
    """by seed"""
    baseline: bool = False

    def values(self, condition: Condition, metric: str) -> dict[str, float]:
        """Return a metric for each seed."""
        return {seed: scores[condition][metric] for seed, scores in self.runs.items() if condition in scores}

    def spread(self, condition: Condition, metric: str) -> Spread | None:
        """Return mean and deviation of a metric, or None where the regime does not exist."""
        values = list(self.values(condition, metric).values())
        return spread(values) if values else None

    def mean(self, condition: Condition, metric: str) -> float | None:
        """Return the mean of a metric, or None where the regime does not exist."""
        over_seeds = self.spread(condition, metric)
        return over_seeds.mean if over_seeds else None


@dataclass(frozen=True)
class Results:
    """All methods of one evaluation; the first one is the method under evaluation."""

    plan: EvaluationPlan
    methods: tuple[EvaluatedMethod, ...]
    against: tuple[str, ...] = ()
    """methods that the others are tested against"""
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every metric of the task, in order."""
        scores = next(iter(self.methods[0].runs.values()))
        return tuple(next(iter(scores.values())))

    @property
    def primary(self) -> str:
        """The metric that methods are compared by first."""
        return ACCURACIES[self.plan.task][0]

    @property
    def shown(self) -> tuple[str, ...]:
        """The metrics that tables show."""
        return ACCURACIES[self.plan.task] + ERRORS[self.plan.task]

    def regimes(self, kind: str) -> tuple[Regime, ...]:
        """Return the regimes of one kind."""
        return tuple(regime for regime in self.plan.regimes if regime.kind == kind)

    def method(self, name: str) -> EvaluatedMethod:
        """Return a method by name."""
        return next(method for method in self.methods if method.name == name)

    def comparisons(self) -> Iterator["Tested"]:
        """Test every model against each method of `against`, on all modalities and on the averages."""
        for theirs in map(self.method, self.against):
            for ours in self.methods:
                if ours.baseline or ours is theirs:
                    continue
                for condition in map(Condition, HEADLINES):
                    for metric in self.shown:
                        if comparison := compare(ours, theirs, condition, metric):
                            yield Tested(ours.name, theirs.name, condition.regime, metric, comparison)


@dataclass(frozen=True)
class Tested:
    """One paired test between two methods."""

    ours: str
    theirs: str
    regime: str
    metric: str
    comparison: Comparison


def compare(ours: EvaluatedMethod, theirs: EvaluatedMethod, condition: Condition, metric: str) -> Comparison | None:
    """Pair two methods by seed (a baseline is paired with every seed); None without any pair."""
    a, b = ours.values(condition, metric), theirs.values(condition, metric)
    if theirs.baseline and b:
        b = dict.fromkeys(a, next(iter(b.values())))
    seeds = [seed for seed in a if seed in b]
    return paired_t_test([a[s] for s in seeds], [b[s] for s in seeds]) if seeds else None


def to_metrics(results: Results) -> dict[str, Any]:
    """Return `metrics.json`: the first method's headline numbers on top, every regime of every method below.

    The long part is a list, which `dvc metrics` skips.
    """
    first = results.methods[0]

    def headline(condition: Condition, metrics: Sequence[str]) -> dict[str, float]:
        means = {metric: first.mean(condition, metric) for metric in metrics}
        return {metric: round(mean, _DIGITS) for metric, mean in means.items() if mean is not None}

    few = (results.primary, *ERRORS[results.plan.task][:1])
    averages = {name.lower(): headline(Condition(name), results.shown) for name in AVERAGES}
    corrupted = {name.lower(): headline(Condition(name, True), few) for name in HEADLINES}
    return {
        **headline(Condition("full"), results.metrics),
        **{name: means for name, means in averages.items() if means},
        "corrupted": {name: means for name, means in corrupted.items() if means},
        "rows": len(results.plan.rows),
        "seeds": len(first.runs),
        "task": results.plan.task,
        "model": first.name,
        "modalities": list(results.plan.modalities),
        "results": list(_records(results)),
        "comparisons": [_rounded(asdict(tested)) for tested in results.comparisons()],
        "notes": list(results.notes),
    }


def _records(results: Results) -> Iterator[dict[str, Any]]:
    for method in results.methods:
        for condition, place in _conditions(results):
            spreads = {metric: method.spread(condition, metric) for metric in results.metrics}
            yield {
                "method": method.name,
                "baseline": method.baseline,
                "seeds": list(method.runs) if not method.baseline else [],
                **place,
                "metrics": {
                    metric: _rounded({"mean": s.mean, "deviation": s.deviation}) for metric, s in spreads.items() if s
                },
            }


def _conditions(results: Results) -> Iterator[tuple[Condition, dict[str, Any]]]:
    for corrupted in (False, True):
        for regime in results.plan.regimes:
            place = {"kind": regime.kind, "regime": regime.name, "eta": regime.rate}
            yield Condition(regime.name, corrupted), {**place, "corrupted": corrupted, "rows": regime.rows}
        for name, kind in AVERAGES.items():
            if results.regimes(kind):
                place = {"kind": "average", "regime": name, "eta": None}
                yield Condition(name, corrupted), {**place, "corrupted": corrupted, "rows": len(results.plan.rows)}


def to_csv(results: Results) -> str:
    """Return `regimes.csv`: a line for each method, seed and regime."""
    lines: list[list[object]] = [["method", "seed", "kind", "regime", "eta", "corrupted", "rows", *results.metrics]]
    for method in results.methods:
        for seed, scores in method.runs.items():
            for condition, place in _conditions(results):
                values = [f"{scores[condition][metric]:.{_DIGITS}f}" for metric in results.metrics]
                cells = [str(cell).lower() if isinstance(cell, bool) else cell for cell in place.values()]
                lines.append([method.name, seed, *cells, *values])
    return _csv(lines)


def to_rates_csv(results: Results) -> str:
    """Return `missing_rates.csv`: the primary metric over η, a column for the first method and each baseline."""
    methods = [m for m in results.methods if m.baseline or m is results.methods[0]]
    names = [results.primary, *(m.name.replace(" ", "_") for m in methods[1:])]
    lines: list[list[object]] = [["eta", *names]]
    for regime in (*results.regimes("full"), *results.regimes("rate")):
        means = [method.mean(Condition(regime.name), results.primary) for method in methods]
        lines.append([regime.rate or 0, *("" if mean is None else f"{mean:.{_DIGITS}f}" for mean in means)])
    return _csv(lines)


def _csv(lines: list[list[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _rounded(value: Any) -> Any:  # noqa: ANN401 -- any JSON
    """Round every number to four decimals, and one that would vanish to four digits."""
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if not isinstance(value, float):
        return value
    return round(value, _DIGITS) if abs(value) >= 1e-3 else float(f"{value:.{_DIGITS}g}")


_ABSENT = "–"


def to_markdown(results: Results) -> str:
    """Return the whole report."""
    task = results.plan.task
    groups = [metrics for metrics in (ACCURACIES[task], ERRORS[task]) if metrics]
    parts = ["# Evaluation", _introduction(results)]
    parts += ["## Overview", *(_overview(results, metrics) for metrics in groups)]
    for kind, title, average in (
        ("fixed", "Fixed patterns: only these modalities are available", "FIX"),
        ("rate", "Missing rates: a share η of the inputs is hidden at random", "MR"),
    ):
        names = [regime.name for regime in results.regimes(kind)]
        if names:
            parts += [f"## {title}"]
            lines = [(name, Condition(name)) for name in ("full", *names, average)]
            parts += [_by_condition(results, lines, metrics) for metrics in groups]
    parts += ["## Corruption", *(_corruption(results, metrics) for metrics in groups)]
    if tests := [test for test in results.comparisons() if test.comparison.pairs > 1]:
        parts += ["## Paired two-tailed t-tests over seeds", _tests(tests)]
    if results.notes:
        parts += ["## Notes", "\n".join(f"- {escape(note)}" for note in results.notes)]
    return "\n\n".join(parts) + "\n"


def _introduction(results: Results) -> str:
    seeds = {method.name: len(method.runs) for method in results.methods if not method.baseline}
    models = ", ".join(f"{escape(name)} ({count} seed{'s' * (count > 1)})" for name, count in seeds.items())
    modalities = ", ".join(map(escape, results.plan.modalities))
    return (
        f"{len(results.plan.rows)} test rows, {results.plan.task}, on {modalities}. "
        f"Models: {models}. Shares are in percent; ± is the deviation over seeds. "
        + "; ".join(f"{name} is the average of the {_KINDS[kind]}" for name, kind in AVERAGES.items())
        + "."
    )


def _overview(results: Results, metrics: Sequence[str]) -> str:
    columns = [Condition(name) for name in HEADLINES if results.methods[0].spread(Condition(name), metrics[0])]
    by_column = [_cells(results.methods, condition, metrics) for condition in columns]
    lines = [[escape(method.name), *cells] for method, *cells in zip(results.methods, *by_column, strict=True)]
    return table([_title(metrics), *(escape(condition.regime) for condition in columns)], lines)


def _by_condition(results: Results, conditions: Sequence[tuple[str, Condition]], metrics: Sequence[str]) -> str:
    lines = [[escape(name), *_cells(results.methods, condition, metrics)] for name, condition in conditions]
    return table([_title(metrics), *(escape(method.name) for method in results.methods)], lines)


def _cells(methods: Sequence[EvaluatedMethod], condition: Condition, metrics: Sequence[str]) -> list[str]:
    """Return `first ± deviation / second / …` for each method, the best in the first metric bold."""
    first = [method.mean(condition, metrics[0]) for method in methods]
    known = [mean for mean in first if mean is not None]
    best = None if not known else min(known) if metrics[0] in LOWER_IS_BETTER else max(known)
    cells = []
    for method, mean in zip(methods, first, strict=True):
        numbers = [_number(method.spread(condition, m), m, deviation=m == metrics[0]) for m in metrics]
        text = " / ".join(numbers)
        cells.append(f"**{text}**" if mean is not None and mean == best else text)
    return cells


def _corruption(results: Results, metrics: Sequence[str]) -> str:
    conditions = [
        (f"{name}, {'corrupted' if corrupted else 'clean'}", Condition(name, corrupted))
        for name in HEADLINES
        for corrupted in (False, True)
        if results.methods[0].spread(Condition(name), metrics[0])
    ]
    return _by_condition(results, conditions, metrics)


def _tests(tests: Sequence[Tested]) -> str:
    metrics = list(dict.fromkeys(test.metric for test in tests))
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for test in tests:
        place = f"{escape(test.ours)} − {escape(test.theirs)}", escape(test.regime), str(test.comparison.pairs)
        p = _ABSENT if test.comparison.p is None else f"{test.comparison.p:.2g}"
        cells.setdefault(place, {})[test.metric] = f"{test.comparison.difference:+.{digits_of(test.metric)}f} (p {p})"
    lines = [[*place, *(cell[m] for m in metrics)] for place, cell in cells.items()]
    return table(["difference", "regime", "pairs", *(TITLES[m] for m in metrics)], lines)


def _title(metrics: Sequence[str]) -> str:
    return " / ".join(TITLES[m] for m in metrics)


def _number(spread: Spread | None, metric: str, *, deviation: bool = True) -> str:
    if spread is None:
        return _ABSENT
    digits = digits_of(metric)
    text = f"{spread.mean:.{digits}f}"
    return f"{text} ± {spread.deviation:.{digits}f}" if deviation and spread.deviation is not None else text


_KINDS = {"fixed": "fixed patterns", "rate": "missing rates"}

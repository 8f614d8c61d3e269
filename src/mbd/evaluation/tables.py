"""The report of an evaluation as Markdown.

Cells are laid out as in the paper: `Acc2 / F1 / Acc7`, the deviation over seeds beside the first. The best method of a
line is bold.
"""

from collections.abc import Sequence

from mbd.evaluation.metrics import ACCURACIES, ERRORS, LOWER_IS_BETTER, TITLES
from mbd.evaluation.regimes import AVERAGES, Condition
from mbd.evaluation.results import HEADLINES, EvaluatedMethod, Results, Spread, Tested
from mbd.markdown import escape, table

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
        cells.setdefault(place, {})[test.metric] = f"{test.comparison.difference:+.{_digits(test.metric)}f} (p {p})"
    lines = [[*place, *(cell[m] for m in metrics)] for place, cell in cells.items()]
    return table(["difference", "regime", "pairs", *(TITLES[m] for m in metrics)], lines)


def _title(metrics: Sequence[str]) -> str:
    return " / ".join(TITLES[m] for m in metrics)


def _number(spread: Spread | None, metric: str, *, deviation: bool = True) -> str:
    if spread is None:
        return _ABSENT
    digits = _digits(metric)
    text = f"{spread.mean:.{digits}f}"
    return f"{text} ± {spread.deviation:.{digits}f}" if deviation and spread.deviation is not None else text


def _digits(metric: str) -> int:
    return 3 if metric in ("mae", "corr") else 1


_KINDS = {"fixed": "fixed patterns", "rate": "missing rates"}

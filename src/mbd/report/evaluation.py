"""The report of an evaluation: a summary for the terminal, the figures, and the data they are drawn from."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError
from mbd.evaluation.candidates import Candidate
from mbd.evaluation.metrics import ACCURACIES, ERRORS, TITLES, digits_of
from mbd.evaluation.results import HEADLINES, Results
from mbd.report.figures import (
    History,
    loss_curves,
    metric_by_pattern,
    metric_over_rates,
)
from mbd.report.text import table

HISTORY = "history.csv"


def evaluation_summary(metrics: Mapping[str, Any]) -> str:
    """Return the headline metrics of every method in `metrics.json` as text."""
    shown = ACCURACIES[metrics["task"]] + ERRORS[metrics["task"]]
    by_method: dict[str, dict[str, Any]] = {}
    for record in metrics["results"]:
        if not record["corrupted"] and record["regime"] in HEADLINES:
            by_method.setdefault(record["method"], {})[record["regime"]] = record["metrics"]
    columns = [(regime, metric) for regime in HEADLINES if regime in by_method[metrics["model"]] for metric in shown]
    lines = [
        [method, *(f"{by_regime[regime][metric]['mean']:.{digits_of(metric)}f}" for regime, metric in columns)]
        for method, by_regime in by_method.items()
    ]
    parts = [
        f"{metrics['rows']} test rows, {metrics['task']}, on {', '.join(metrics['modalities'])}",
        "",
        table(["method", *(f"{regime} {TITLES[metric]}" for regime, metric in columns)], lines),
    ]
    return "\n".join(parts + [f"note: {note}" for note in metrics["notes"]])


def draw_figures(results: Results, candidates: Sequence[Candidate]) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the PNG of every figure for which there are data."""
    if results.regimes("rate"):
        yield "missing_rates", metric_over_rates(results)
    if results.regimes("fixed"):
        yield "fixed_patterns", metric_by_pattern(results)
    for candidate in candidates:
        suffix = f"_{candidate.name.replace('/', '_')}" if len(candidates) > 1 else ""
        files = [folder / HISTORY for folder in candidate.folders.values()]
        histories = [read_history(file) for file in files if file.is_file()]
        if histories := [history for history in histories if history]:
            yield f"losses{suffix}", loss_curves(histories, candidate.name)


def read_history(file: Path) -> History:
    """Return the columns of a `history.csv`. Empty cells are NaN; a lattice has no epochs and gives no columns."""
    with file.open(encoding="utf-8", newline="") as stream:
        lines = list(csv.DictReader(stream))
    if lines and "tag" in lines[0]:
        return {}
    if not lines or "epoch" not in lines[0]:
        raise DataError("the training history has no epochs", file=file, key="epoch")
    try:
        return {name: np.array([float(line[name] or "nan") for line in lines]) for name in lines[0]}
    except (TypeError, ValueError) as error:
        raise DataError(f"the training history holds a value that is not a number: {error}", file=file) from error

"""What the two studies of missing modalities share: tables by regime, and how a model fills what is missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from mbd.evaluation.metrics import TITLES
from mbd.evaluation.results import EvaluatedMethod
from studies import printed
from studies.claims import judged, listed, text
from studies.outcome import Cell, Finding, StudyTable
from studies.scores import Scores, mean, spread_of

IMPUTED = ("zero imputation", "mean imputation")
RIDGE = "ridge by pattern"


def tables(scores: Scores, regimes: Sequence[str], average: str, title: str) -> list[StudyTable]:
    """Return the first metric of every method, and all accuracies of the models."""
    rows = [*regimes, average]
    models = [method for method in scores.methods if not method.baseline]
    metrics = " / ".join(TITLES[metric] for metric in scores.shown)
    about = "rows that have" if average == "FIX" else "η"
    note = " ".join(note for note in scores.notes if about in note)
    return [
        StudyTable(
            f"{title}: {TITLES[scores.primary]}",
            ["available" if average == "FIX" else "missing rate", *(method.name for method in scores.methods)],
            [[row, *(spread_of(method, row, scores.primary) for method in scores.methods)] for row in rows],
            note=note,
        ),
        StudyTable(
            f"{title}: {metrics}",
            ["available" if average == "FIX" else "missing rate", *(method.name for method in models)],
            [[row, *(_together(method, row, scores.shown) for method in models)] for row in rows],
        ),
    ]


def printed_table(table: Mapping[str, Mapping[str, printed.Short]], name: str, first: str) -> StudyTable:
    """Return a table of the paper, with the averages that its rows really have."""
    rows: list[list[Cell]] = [[row, *map(_slashed, cells.values())] for row, cells in table.items()]
    rows.append(["Avg. of these rows", *(_slashed(cell, 2) for cell in printed.averages(table).values())])
    return StudyTable(
        f"CMU-MOSI, {name}: Acc2 / F1 / Acc7",
        [first, *table[printed.AVERAGE]],
        rows,
        note="The last line is not in the paper: it is computed from the lines above.",
        printed=True,
    )


def data(scores: Scores, regimes: Sequence[str]) -> dict[str, Any]:
    """Return every number by method, regime and metric."""
    return {
        method.name: {
            regime: {metric: vars(spread_of(method, regime, metric)) for metric in scores.all_metrics}
            for regime in regimes
        }
        for method in scores.methods
    }


def filling_claim(scores: Scores, regimes: Sequence[str], average: str, more: str = "") -> Finding:
    """Judge whether the model makes up for what is missing better than plain imputation does."""
    where = "under fixed patterns" if average == "FIX" else "at missing rates"
    claim = f"Reconstruction and fusion are reliable when inputs are partial ({where})."
    imputed = [method for name in IMPUTED if (method := scores.method(name))]
    if not imputed:
        return Finding(claim, "not comparable", "No imputation was measured beside it.")
    metric, ours = scores.primary, scores.ours
    best = max(imputed, key=lambda method: mean(method, average, metric))
    ahead = sum(mean(ours, regime, metric) > mean(best, regime, metric) for regime in regimes)
    gain = mean(ours, average, metric) - mean(best, average, metric)
    ridge = scores.method(RIDGE)
    more = more + (
        f" A ridge regression for each set of available modalities, which reconstructs nothing, has "
        f"{text(spread_of(ridge, average, metric))}."
        if ridge
        else ""
    )
    return Finding(
        claim,
        judged(gain > 0),
        f"Against ridge on inputs filled by {best.name.replace(' imputation', 's')}, {ours.name} has {gain:+.1f} "
        f"points of {TITLES[metric]} on average ({text(spread_of(ours, average, metric))} and "
        f"{mean(best, average, metric):.1f}), and more in {ahead} of {len(regimes)} regimes "
        f"({listed([r for r in regimes if mean(ours, r, metric) > mean(best, r, metric)])}).{more}",
    )


def _together(method: EvaluatedMethod, regime: str, metrics: Sequence[str]) -> str:
    return " / ".join(f"{mean(method, regime, metric):.1f}" for metric in metrics)


def _slashed(cell: printed.Short, digits: int = 1) -> str:
    return "/".join(f"{value:.{digits}f}" for value in cell)

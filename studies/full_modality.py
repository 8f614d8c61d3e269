"""Backbones with all modalities there, beside the paper's comparison tables (MOSI, MOSEI, IEMOCAP).

The paper's competitors are not run here: each needs its own code and features. The paper's model is compared with the
lattice and three plain ridge regressions on the very same rows, which a better model has to beat.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from mbd.evaluation.metrics import TITLES
from studies import printed
from studies.claims import (
    OWN_TABLE,
    judged,
    lead_claim,
    linear_note,
    listed,
    papers_set,
    scores_claim,
    significance_claim,
    why_not_comparable,
)
from studies.drawing import Series, dots
from studies.layout import Layout
from studies.outcome import Cell, Finding, StudyOutcome, StudyTable
from studies.scores import Scores, mean, read_scores, spread_of

REGIME = "full"
_PRIMARY = {"mosi": ("acc2", "f1"), "mosei": ("acc2", "f1"), "iemocap": ("wa", "ua")}


def study(layout: Layout) -> StudyOutcome:
    """Compare backbones on every data set of the plan."""
    found = {data: read_scores(layout.evaluation(data)) for data in layout.plan.compared}
    beside = {data: _beside(layout, data, scores) for data, scores in found.items()}
    return StudyOutcome(
        name="full-modality",
        title="All modalities available",
        question="How good is the paper's model when every modality is there, and is anything simpler as good?",
        tables=[
            *(_ours(data, scores) for data, scores in found.items()),
            *(_printed(data) for data in dict.fromkeys(beside.values())),
        ],
        figures={"full-modality": _figure(found)},
        findings=[
            lead_claim(
                "MBD is the strongest method when all modalities are available.", found, [REGIME], linear_note(layout)
            ),
            significance_claim("All its improvements are significant at p < 0.01 (all modalities).", found, REGIME),
            _margins(),
            *(_reached(layout, data, scores, beside[data]) for data, scores in found.items()),
        ],
        data={data: {"rows": scores.rows, "lead": _lead(scores)} for data, scores in found.items()},
    )


def _beside(layout: Layout, data: str, scores: Scores) -> str:
    """Return the data set of the paper to show beside `data`: the same, or one of the same task."""
    known = data if data in printed.DATA else papers_set(layout, data)
    return known or ("mosi" if scores.task == "regression" else "iemocap")


def _lead(scores: Scores) -> dict[str, object]:
    other = scores.best_other(REGIME, scores.primary)
    return {"metric": scores.primary, "over": other.name, **asdict(scores.lead(REGIME, scores.primary))}


def _ours(data: str, scores: Scores) -> StudyTable:
    metrics = scores.all_metrics
    return StudyTable(
        title=f"{data}, all modalities ({scores.rows} test rows)",
        header=["method", *(TITLES[metric] for metric in metrics)],
        rows=[[method.name, *(spread_of(method, REGIME, metric) for metric in metrics)] for method in scores.methods],
        digits=_digits(metrics),
    )


def _table(data: str) -> Mapping[str, printed.Sentiment] | Mapping[str, printed.Emotion]:
    return printed.IEMOCAP if data == "iemocap" else printed.FULL_MODALITY[data]


def _printed(data: str) -> StudyTable:
    table = _table(data)
    order = [metric for metric in TITLES if metric in table[printed.OURS]._fields]
    rows: list[list[Cell]] = [[name, *(getattr(row, metric) for metric in order)] for name, row in table.items()]
    return StudyTable(
        title=printed.DATA[data],
        header=["method", *(TITLES[metric] for metric in order)],
        rows=rows,
        digits=_digits(order),
        note="The caption promises mean ± deviation over three runs; the table has no deviations.",
        printed=True,
    )


def _digits(metrics: Sequence[str]) -> list[int]:
    return [0, *(3 if metric in ("mae", "corr") else 1 for metric in metrics)]


def _figure(found: Mapping[str, Scores]) -> bytes:
    series = []
    for name in dict.fromkeys(method.name for scores in found.values() for method in scores.methods):
        methods = [(scores.method(name), scores.primary) for scores in found.values()]
        values = [spread_of(method, REGIME, metric) if method else None for method, metric in methods]
        baseline = all(method.baseline for method, _ in methods if method)
        series.append(Series(name, values, "baseline" if baseline else "model"))
    rows = [f"{data}\n{TITLES[scores.primary]}" for data, scores in found.items()]
    return dots(rows, series, title="All modalities available", xlabel="percent of the test rows")


def _margins() -> Finding:
    margins = {data: printed.margins(_table(data), metrics) for data, metrics in _PRIMARY.items()}
    every = [margin for found in margins.values() for margin in found.values()]
    parts = [
        f"{printed.DATA[data]} {' and '.join(f'{TITLES[metric]} {margin:+.1f}' for metric, margin in found.items())}"
        for data, found in margins.items()
    ]
    return Finding(
        f"The improvements are approximately 1–2 percentage points on the primary metrics ({OWN_TABLE}).",
        judged(all(0.5 <= margin < 2.5 for margin in every)),
        f"By the printed numbers the lead over the best rival is {listed(parts)}: "
        f"{min(every):.1f} to {max(every):.1f} points.",
    )


def _reached(layout: Layout, data: str, scores: Scores, beside: str) -> Finding:
    theirs = _table(beside)[printed.OURS]
    metrics = [metric for metric in scores.shown if metric in theirs._fields]
    return scores_claim(
        f"MBD reaches {listed([f'{TITLES[m]} {getattr(theirs, m):.1f}' for m in metrics])} on {printed.DATA[beside]}.",
        why_not_comparable(layout, data, scores.modalities, beside),
        [(TITLES[m], mean(scores.ours, REGIME, m), float(getattr(theirs, m))) for m in metrics],
    )

"""Losses over epochs, every seed of the joint backbone.

A loss *declines in a stable manner* if in every seed it ends below where it began and follows the epochs downwards:
Spearman's rank correlation between epoch and loss at most −0.8.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from mbd.evaluation.results import spread
from mbd.report.figures import loss_curves
from mbd.tensors import Array
from studies.claims import judged, listed
from studies.layout import Layout, read_history
from studies.outcome import Finding, StudyOutcome, StudyTable
from studies.scores import JOINT

TERMS = {"task": "L_task", "reconstruction": "L_re", "property": "L_pe", "contrastive": "L_con"}
"""the four losses of the paper's figure; those that L_pe is made of are in our figure too"""
STABLE = -0.8
History = Mapping[str, Array]


def study(layout: Layout) -> StudyOutcome:
    """Draw and judge the training of every seed, on the main data set."""
    folders = layout.by_seed(layout.models(layout.plan.main, JOINT))
    histories = [read_history(folder) for folder in folders.values()]
    terms = [term for term in TERMS if term in histories[0] and np.isfinite(histories[0][term]).all()]
    every = [*terms, *(name for name in histories[0] if name not in (*terms, "epoch"))]
    trends = {term: [_trend(history[term]) for history in histories] for term in every}
    return StudyOutcome(
        name="loss-curves",
        title="Losses over epochs",
        question="Does training go down steadily, for each loss and every seed?",
        tables=[
            StudyTable(
                f"{layout.plan.main}: first and last epoch",
                ["loss", "first", "last", "change (%)", "ρ with epoch", "deviation over seeds (%)"],
                [
                    [
                        TERMS.get(term, term.replace("_", " ")),
                        spread([history[term][0] for history in histories]),
                        spread([history[term][-1] for history in histories]),
                        spread([_change(history[term]) for history in histories]),
                        spread(trends[term]),
                        deviation_over_seeds(histories, term),
                    ]
                    for term in every
                ],
                digits=[0, 3, 3, 1, 2, 1],
                note="ρ is Spearman's rank correlation, −1 if every epoch is below the one before. The deviation over "
                "seeds is relative to the mean of an epoch, averaged over epochs.",
            )
        ],
        figures={"loss-curves": loss_curves(histories, JOINT)},
        findings=[_stable(histories, terms, trends), _variance(histories, terms)],
        data={"trend": trends, "epochs": [len(history["epoch"]) for history in histories]},
    )


def _trend(values: Array) -> float:
    """Return Spearman's ρ between epoch and loss, 0 for a constant."""
    known = values[np.isfinite(values)]
    if len(known) < 2 or np.ptp(known) == 0:
        return 0.0
    ranks = np.unique(known, return_inverse=True)[1]
    return float(np.corrcoef(np.arange(len(known)), ranks)[0, 1])


def _change(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(100 * (known[-1] / known[0] - 1)) if len(known) and known[0] else 0.0


def deviation_over_seeds(histories: Sequence[History], term: str) -> float | None:
    """Return the deviation over seeds in percent of the mean, averaged over epochs; None for one seed."""
    if len(histories) < 2:
        return None
    shortest = min(len(history[term]) for history in histories)
    values = np.array([history[term][:shortest] for history in histories])
    means = np.abs(values.mean(0))
    known = np.isfinite(means) & (means > 0)
    return float(100 * np.mean(values.std(0, ddof=1)[known] / means[known])) if known.any() else None


def _stable(histories: Sequence[History], terms: Sequence[str], trends: Mapping[str, Sequence[float]]) -> Finding:
    good = {
        term: all(_change(h[term]) < 0 for h in histories) and all(trend <= STABLE for trend in trends[term])
        for term in terms
    }
    parts = [
        f"{TERMS[term]} {np.mean([_change(h[term]) for h in histories]):+.0f} % (ρ = {max(trends[term]):.2f} at worst)"
        for term in terms
    ]
    failing = [TERMS[term] for term in terms if not good[term]]
    more = f" Not steady by that measure: {listed(failing)}." if failing else ""
    return Finding(
        "All losses decline in a stable manner across epochs.",
        judged(not failing),
        f"From first to last epoch: {listed(parts)}, over {len(histories)} seed{'s' * (len(histories) > 1)}; "
        f"steady is ρ ≤ {STABLE} in every seed.{more}",
    )


def _variance(histories: Sequence[History], terms: Sequence[str]) -> Finding:
    claim = "The property-alignment objective exhibits particularly low variance."
    found = {term: value for term in terms if (value := deviation_over_seeds(histories, term)) is not None}
    if "property" not in found or len(found) < 2:
        return Finding(claim, "not comparable", "It takes L_pe and at least two seeds.")
    order = sorted(found, key=found.__getitem__)
    parts = [f"{TERMS[term]} {found[term]:.1f} %" for term in order]
    return Finding(
        claim,
        judged(order[0] == "property"),
        f"Deviation over {len(histories)} seeds relative to the mean, smallest first: {listed(parts)}.",
    )

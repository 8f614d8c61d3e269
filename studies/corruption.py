"""Robustness to corruption: a share of the test rows damaged, FIX and MR, and how far that moves P^m.

The paper reports the mean squared deviation between property embeddings estimated from noisy and from clean input; here
it is that of μ̄^m, the mean of the invariant part of all rows of modality m, which P^m is aligned with.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mbd.evaluation.metrics import TITLES
from mbd.evaluation.regimes import plan_evaluation
from mbd.features.contract import FeatureSet
from mbd.model.joint import JointBackbone, to_array
from mbd.model.predictor import load
from mbd.params import load_params
from mbd.report.figures import COLOURS, figure_png
from mbd.tensors import Array
from studies import printed
from studies.claims import judged, listed, text
from studies.drawing import PRINTED, Series, dots
from studies.layout import Layout
from studies.outcome import Cell, Finding, StudyOutcome, StudyTable
from studies.scores import JOINT, Scores, loss_by_corruption, read_scores, spread_of
from studies.tsne import model_inputs

Drift = Sequence[Mapping[str, Any]]
"""for each modality the mean squared deviations between P^m and μ̄^m of clean and of corrupted rows"""


def study(layout: Layout) -> StudyOutcome:
    """Compare clean and corrupted test rows, on the main data set."""
    main = layout.plan.main
    scores = read_scores(layout.evaluation(main))
    regimes = [regime for regime in ("FIX", "MR") if scores.has(regime)]
    drift = deviations(layout)
    share = next((note for note in scores.notes if note.startswith("Corruption")), "")
    figures = {"corruption": _losses_figure(scores, regimes)}
    if drift:
        figures["property-drift"] = _drift_figure(drift)
    return StudyOutcome(
        name="corruption",
        title="Robustness to corruption",
        question="What does a model lose when some test rows are damaged, and do its property embeddings move?",
        tables=[_ours(main, scores, regimes, share), _printed(), *([_drift(drift)] if drift else [])],
        figures=figures,
        findings=[_modest(scores, regimes), _stabilised(scores, regimes), judge_drift(drift)],
        data={
            "loss": {
                method.name: {regime: vars(loss_by_corruption(method, regime, scores.primary)) for regime in regimes}
                for method in scores.methods
            },
            "property drift": list(drift),
        },
    )


def deviations(layout: Layout) -> Drift:
    """Measure the first seed of the joint backbone; nothing where it was trained without the property pathway."""
    main, params = layout.plan.main, load_params().evaluation
    data = FeatureSet.open(layout.features(main))
    bench = plan_evaluation(data.split("test").load(), data.manifest.task, params)
    backbone = (model := load(next(iter(layout.by_seed(layout.models(main, JOINT)).values())))).backbone
    if not isinstance(backbone, JointBackbone) or not backbone.network.shape.property_pathway:
        return []
    clean, corrupted = (_invariant_means(backbone, *model_inputs(model, rows)) for rows in (bench.rows, bench.damaged))
    own = {m: to_array(path.property[0]) for m, path in backbone.network.modality.items()}
    pairs = {"clean_to_corrupted": (clean, corrupted), "property_to_clean": (own, clean)}
    pairs |= {"property_to_corrupted": (own, corrupted)}
    return [{"modality": m, **{name: _mse(a[m], b[m]) for name, (a, b) in pairs.items()}} for m in bench.modalities]


def _invariant_means(
    backbone: JointBackbone, features: Mapping[str, Array], available: Mapping[str, Array]
) -> dict[str, Array]:
    """Return μ̄^m, the mean of μ^m over the rows that have m."""
    network = backbone.network
    with torch.inference_mode():
        raw, there = backbone.to_tensors(features, available)
        inputs = network.standardise(raw, there)
        means = {m: path.decompose(inputs[m][there[m]])[1].mean(0) for m, path in network.modality.items()}
    return {m: to_array(mean) for m, mean in means.items()}


def _mse(a: Array, b: Array) -> float:
    return float(f"{np.mean((a.astype(np.float64) - b) ** 2):.4g}")


def _ours(main: str, scores: Scores, regimes: Sequence[str], note: str) -> StudyTable:
    def row(place: int, corrupted: bool) -> list[Cell]:
        method = scores.methods[place]
        values = [spread_of(method, r, metric, corrupted=corrupted) for r in regimes for metric in scores.shown]
        return [method.name, "corrupted" if corrupted else "clean", *values]

    return StudyTable(
        f"{main}: clean and corrupted test rows",
        ["method", "rows", *(f"{regime} {TITLES[metric]}" for regime in regimes for metric in scores.shown)],
        [row(place, corrupted) for place in range(len(scores.methods)) for corrupted in (True, False)],
        note=note,
    )


def _printed() -> StudyTable:
    return StudyTable(
        "CMU-MOSI, corruption",
        ["rows", *(f"{regime} {TITLES[metric]}" for regime in ("FIX", "MR") for metric in printed.Short._fields)],
        [[name, *row.fix, *row.mr] for name, row in printed.CORRUPTION.items()],
        note=f"Drift of the property embeddings, printed: MSE ≈ {printed.P_DRIFT}.",
        printed=True,
    )


def _drift(drift: Drift) -> StudyTable:
    return StudyTable(
        "Mean squared deviation of the property embeddings (first seed of the joint backbone)",
        ["modality", "μ̄ of clean – of corrupted rows", "P – μ̄ of clean rows", "P – μ̄ of corrupted rows"],
        [[one["modality"], *(f"{one[name]:.2g}" for name in one if name != "modality")] for one in drift],
    )


def _losses_figure(scores: Scores, regimes: Sequence[str]) -> bytes:
    metric = scores.primary
    series = [
        Series(
            method.name,
            [loss_by_corruption(method, regime, metric) for regime in regimes],
            "baseline" if method.baseline else "model",
        )
        for method in scores.methods
    ]
    if metric == "acc2":
        series.append(Series("MBD on CMU-MOSI (printed)", [_printed_loss(regime) for regime in regimes], "printed"))
    xlabel = f"points of {TITLES[metric]} lost on corrupted rows"
    return dots(regimes, series, title="What corruption costs", xlabel=xlabel, zero=True)


def _drift_figure(drift: Drift) -> bytes:
    values = np.array([one["clean_to_corrupted"] for one in drift])
    names = [one["modality"] for one in drift]
    with figure_png((6.8, 1.7 + 0.42 * len(names))) as (figure, png):
        panel = figure.subplots()
        panel.barh(names, values, color=COLOURS[0], height=0.55)
        panel.axvline(printed.P_DRIFT, color=PRINTED[0], linestyle=(0, (5, 2)), label=f"printed: {printed.P_DRIFT}")
        positive = values[values > 0]
        if len(positive):
            panel.set_xscale("log")
            panel.set_xlim(positive.min() / 5, max(printed.P_DRIFT, positive.max()) * 5)
        panel.invert_yaxis()
        panel.grid(False, axis="y")
        panel.set_xlabel("mean squared deviation of μ̄ between clean and corrupted rows")
        panel.set_title("How far corruption moves the property embeddings")
        figure.legend(loc="outside lower center")
    return png.getvalue()


def _printed_loss(regime: str) -> float:
    clean, corrupted = (getattr(printed.CORRUPTION[rows], regime.lower()).acc2 for rows in ("clean", "corrupted"))
    return float(clean - corrupted)


def _modest(scores: Scores, regimes: Sequence[str]) -> Finding:
    lost = {regime: loss_by_corruption(scores.ours, regime, scores.primary) for regime in regimes}
    bound = max(map(_printed_loss, regimes))
    parts = [f"{text(found)} in {regime} (printed {_printed_loss(regime):.1f})" for regime, found in lost.items()]
    return Finding(
        "The degradation by corruption is modest.",
        judged(all(found.mean <= bound for found in lost.values())),
        f"{scores.ours.name} loses {listed(parts)} points of {TITLES[scores.primary]}. Judged by the larger printed "
        f"loss, {bound:.1f}; how strong the paper's damage is, it does not say.",
    )


def _stabilised(scores: Scores, regimes: Sequence[str]) -> Finding:
    claim = "Batch-averaged invariant estimates and the alignment margin stabilise the model."
    lost = {m.name: [loss_by_corruption(m, r, scores.primary) for r in regimes] for m in scores.methods}
    ours = lost.pop(scores.ours.name)
    least = min(lost, key=lambda name: sum(loss.mean for loss in lost[name]))
    pairs = list(zip(regimes, ours, lost[least], strict=True))
    parts = [f"{regime} {text(a, 2)} against {text(b, 2)}" for regime, a, b in pairs]
    return Finding(
        claim,
        judged(all(a.mean < b.mean for _, a, b in pairs)),
        f"Methods without property embeddings should then lose more, in each regime. Of these {least} loses least: "
        f"points of {TITLES[scores.primary]} lost by {scores.ours.name} and by it, {listed(parts)}.",
    )


def judge_drift(drift: Drift) -> Finding:
    """Hold the drift against what is printed."""
    claim = f"Property embeddings from noisy and clean input differ little (MSE ≈ {printed.P_DRIFT})."
    if not drift:
        return Finding(claim, "not comparable", "The first model has no property embeddings.")
    values = {one["modality"]: one["clean_to_corrupted"] for one in drift}
    largest = max(values, key=values.__getitem__)
    parts = [f"{modality} {value:.1e}" for modality, value in values.items()]
    ratio = printed.P_DRIFT / values[largest] if values[largest] else float("inf")
    return Finding(
        claim,
        judged(values[largest] <= printed.P_DRIFT),
        f"{listed(parts)}: the largest is {_times(ratio)} what is printed. It is a mean over all rows of which few are "
        "damaged, so it moves little whatever the model; it says nothing about single rows.",
    )


def _times(ratio: float) -> str:
    if not np.isfinite(ratio):
        return "none of"
    return f"1/{ratio:.0f} of" if ratio >= 1 else f"{1 / ratio:.1f} times"

"""t-SNE maps of the reconstructed embeddings X̂ of the test rows, without and with the property pathway.

A map bends distances, so the claim is judged in the space before the map, by the silhouette of the sentiment: the mean
over rows of (b − a) / max(a, b), with a the mean distance to rows of the same class and b to those of the nearest other
one. It is 1 for classes that are compact and far apart, and 0 for classes that lie through each other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from mbd.evaluation.regimes import EvaluationPlan, plan_evaluation
from mbd.evaluation.results import paired_t_test, spread
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.model.joint import JointBackbone
from mbd.model.predictor import Model, load
from mbd.params import load_params
from mbd.randomness import stream, stream_seed
from mbd.report.figures import COLOURS, figure_png
from mbd.tensors import Array
from studies.claims import judged, p_text, text
from studies.layout import Layout
from studies.outcome import Finding, StudyOutcome, StudyTable
from studies.scores import JOINT

WITHOUT = "no-property"
CALLED = {WITHOUT: "without property pathway", JOINT: "with property pathway"}
APART = 0.25
"""below this silhouette, by a common rule of thumb, classes have no structure of their own"""
_LARGEST_MAP = 500
_ITERATIONS = 500
_SMALLEST_DEVIATION = 1e-6
_CLAIM = "With the property pathway, clusters of positive and negative sentiment are more compact and better separated."
Silhouettes = Mapping[str, Mapping[int, float]]
"""by model, then by seed"""


def study(layout: Layout) -> StudyOutcome:
    """Map what the first seed of both models reconstructs, and judge every seed."""
    plan, params = layout.plan, load_params().evaluation
    data = FeatureSet.open(layout.features(plan.main))
    bench = plan_evaluation(data.split("test").load(), data.manifest.task, params)
    labels, names = sentiment_classes(bench, data.manifest.classes)
    chosen = sample_for_map(len(labels), params.seed)
    shown = bench.rows.take(chosen), labels[chosen]
    models = {
        name: layout.by_seed(layout.models(plan.main, name)) for name in CALLED if name in (JOINT, *plan.variants)
    }
    found = {
        name: {seed: silhouette(matrix, labels) for seed, matrix in _matrices(folders, bench.rows).items()}
        for name, folders in models.items()
    }
    maps = {}
    for name, folders in models.items():
        matrix = next(iter(_matrices(dict([next(iter(folders.items()))]), shown[0]).values()), None)
        if matrix is not None and len(matrix) > 3:
            maps[CALLED[name]] = map_of(matrix, shown[1], params.seed)
    return StudyOutcome(
        name="tsne",
        title="Reconstructed embeddings",
        question="Do reconstructed embeddings of one sentiment lie closer together with the property pathway?",
        tables=[_table(plan.main, found, len(labels))],
        figures={"tsne": reconstruction_map(maps, shown[1], names)} if maps else {},
        findings=[_separated(found)],
        data={"silhouette": {name: {str(seed): value for seed, value in s.items()} for name, s in found.items()}}
        | _test(found),
    )


def _matrices(folders: Mapping[int, Path], rows: Rows) -> dict[int, Array]:
    """Return what each model reconstructs; a model without generators is passed over."""
    found = {seed: standardised_reconstructions(load(folder), rows) for seed, folder in folders.items()}
    return {seed: matrix for seed, matrix in found.items() if matrix is not None}


def silhouette(matrix: Array, labels: Array) -> float:
    """Return the silhouette of `labels`, 0 where there is one class only."""
    from sklearn.metrics import silhouette_score  # noqa: PLC0415 -- slow to import
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    with threadpool_limits(1):
        return float(silhouette_score(matrix, labels)) if 1 < len(np.unique(labels)) < len(labels) else 0.0


def _table(main: str, found: Silhouettes, rows: int) -> StudyTable:
    return StudyTable(
        f"{main}: silhouette of the sentiment in the reconstructed embeddings of {rows} test rows",
        ["model", "silhouette", *(f"seed {seed}" for seed in next(iter(found.values()), {}))],
        [
            [CALLED[name], spread(list(values.values())) if values else None, *values.values()]
            for name, values in found.items()
            if values
        ],
        digits=4,
        note="The map is of the first seed. The paper shows a map only, without a number.",
    )


def _test(found: Silhouettes) -> dict[str, object]:
    if len(found) < 2 or not all(found.values()):
        return {}
    return {"with minus without": asdict(paired_t_test(*_pairs(found)))}


def _pairs(found: Silhouettes) -> tuple[list[float], list[float]]:
    seeds = [seed for seed in found[JOINT] if seed in found[WITHOUT]]
    return [found[JOINT][seed] for seed in seeds], [found[WITHOUT][seed] for seed in seeds]


def _separated(found: Silhouettes) -> Finding:
    if len(found) < 2 or not all(found.values()):
        return Finding(_CLAIM, "not comparable", f"It takes a model with generators and one of the variant {WITHOUT}.")
    ours, theirs = _pairs(found)
    test = paired_t_test(ours, theirs)
    better = sum(a > b for a, b in zip(ours, theirs, strict=True))
    weak = max(np.mean(ours), np.mean(theirs)) < APART
    return Finding(
        _CLAIM,
        judged(better == len(ours)),
        f"Silhouette {text(spread(ours), 4)} with the pathway and {text(spread(theirs), 4)} without it "
        f"({test.difference:+.4f}, {p_text(test)}): higher in {better} of {len(ours)} "
        f"seed{'s' * (len(ours) > 1)}."
        + (f" Both are below {APART}: with or without it there are no clear clusters of sentiment." if weak else ""),
    )


def standardised_reconstructions(model: Model, rows: Rows) -> Array | None:
    """Return the standardised reconstructions of all modalities side by side, or None if there are none to distinguish.

    The last modality that is left is generated from nothing: the same for every row.
    """
    if not isinstance(model.backbone, JointBackbone):
        return None
    parts = model.backbone.reconstruct(*model_inputs(model, rows))
    if not parts:
        return None
    matrix = np.hstack(list(parts.values())).astype(np.float64)
    deviation = matrix.std(0)
    if deviation.max() < _SMALLEST_DEVIATION:
        return None
    standardised: Array = (matrix - matrix.mean(0)) / np.maximum(deviation, _SMALLEST_DEVIATION)
    return standardised


def sentiment_classes(plan: EvaluationPlan, classes: tuple[str, ...]) -> tuple[Array, tuple[str, ...]]:
    """Return the class of each row and the names of the classes: for regression, the sign of the label."""
    if plan.task == "classification":
        return plan.rows.labels, classes
    return (plan.rows.labels >= 0).astype(np.int64), ("negative", "non-negative")


def sample_for_map(n: int, seed: int) -> Array:
    """Return the positions of at most so many rows as a map can show."""
    return np.sort(stream(seed, "evaluation", "map").permutation(n)[:_LARGEST_MAP])


def map_of(matrix: Array, labels: Array, seed: int) -> tuple[Array, float]:
    """Return the t-SNE map of `matrix` (n × 2), and the silhouette of `labels` in `matrix` itself."""
    from sklearn.manifold import TSNE  # noqa: PLC0415 -- slow to import
    from threadpoolctl import threadpool_limits  # noqa: PLC0415

    state = stream_seed(seed, "evaluation", "t-SNE") % 2**32
    with threadpool_limits(1):  # sums by several threads differ in their last bits, which t-SNE blows up
        perplexity = min(30.0, (len(matrix) - 1) / 3)
        tsne = TSNE(perplexity=perplexity, init="pca", max_iter=_ITERATIONS, random_state=state)
        points: Array = tsne.fit_transform(matrix)
    return points, silhouette(matrix, labels)


def model_inputs(model: Model, rows: Rows) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return features and availability for every modality the model is built for; one that `rows` lacks is missing."""
    n, built_for = len(rows), model.record.modalities
    features = {m: rows.features.get(m, np.zeros((n, d), np.float32)) for m, d in built_for.items()}
    return features, {m: rows.available.get(m, np.zeros(n, bool)) for m in built_for}


def reconstruction_map(panels: Mapping[str, tuple[Array, float]], labels: Array, names: Sequence[str]) -> bytes:
    """Draw one t-SNE map per entry of `panels`.

    Args:
        panels: By title, the points (n × 2) and the silhouette score of the labels.
        labels: The class of each point, as an index into `names`.
        names: Names of the classes.

    """
    with figure_png((4.1 * len(panels) + 0.3, 4.3)) as (figure, png):
        axes = figure.subplots(1, len(panels), squeeze=False).ravel()
        for panel, (title, (points, silhouette)) in zip(axes, panels.items(), strict=True):
            for index, name in enumerate(names):
                panel.scatter(
                    *points[labels == index].T,
                    s=11,
                    color=COLOURS[index % len(COLOURS)],
                    marker="os^Dv"[index % 5],
                    alpha=0.6,
                    linewidths=0,
                    label=name,
                )
            panel.set(xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
            panel.grid(False)
            panel.set_title(f"{title}\n", fontsize=10)
            panel.text(0, 1.02, f"silhouette {silhouette:+.3f}", transform=panel.transAxes, color="#666666")
        handles, entries = axes[0].get_legend_handles_labels()
        figure.legend(handles, entries, loc="outside lower center", ncols=len(names))
        figure.suptitle("t-SNE of reconstructed embeddings X̂ (test rows)", x=0.01, ha="left")
    return png.getvalue()

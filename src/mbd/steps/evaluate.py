"""Step `evaluate`: utility of models when modalities are missing or damaged, beside ridge on the same rows.

Each model folder is one method; it holds a model, or one for each seed in `seed-0`, `seed-1`, …. All methods are judged
on the test rows and on the modalities that all of them take: a model without m, or with m revoked, is never shown m,
and neither are the methods that it is compared with. Train rows serve the baselines only; the calibration split is not
opened.

    metrics.json         headline numbers of the first model; every regime of every method; t-tests; notes
    headline.json        the first metric of the first model with all modalities, for `dvc metrics`
    regimes.csv          a line for each method, seed and regime
    missing_rates.csv    the first metric over η, for plots
    report.md            the tables
    figures/*.png        losses, metric over η and by pattern
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mbd.evaluation.candidates import open_candidates, shared_data
from mbd.evaluation.regimes import EvaluationPlan, evaluate_predictor, plan_evaluation
from mbd.evaluation.results import EvaluatedMethod, Results, to_csv, to_markdown, to_metrics, to_rates_csv
from mbd.evaluation.ridge import ImputedRidge, PatternRidge
from mbd.features.contract import FeatureSet
from mbd.features.pooling import as_vectors
from mbd.files import to_json, write_file
from mbd.formats.files import METRICS, REPORT
from mbd.markdown import ShownInNotebooks
from mbd.outputs import step_run
from mbd.params import Params
from mbd.report.evaluation import draw_figures, evaluation_summary
from mbd.steps.step import reads

NAME = "evaluate"
HEADLINE = "headline.json"
RIDGE = "ridge by pattern"


@dataclass(frozen=True)
class EvaluationResult(ShownInNotebooks):
    """An evaluation that was written."""

    metrics: dict[str, Any]
    """the content of `metrics.json`"""

    def to_text(self) -> str:
        """Return the headline metrics of every method, for a terminal."""
        return evaluation_summary(self.metrics)


@reads("models", "against", data="features")
def run(
    params: Params, features: Path, models: Sequence[Path], out: Path, *, against: Path | None = None
) -> EvaluationResult:
    """Evaluate `models` on the FeatureSet `features`.

    Every model is tested against ridge and, over seeds, against the model in `against`.
    """
    folders = [*models, *([against] if against and against not in models else [])]
    with step_run(NAME, out, {"evaluation": params.evaluation}, features=features) as step:
        candidates = open_candidates(folders)
        for candidate in candidates:
            for seed, folder in candidate.folders.items():
                step.read(f"model {candidate.name} seed {seed}", folder)
        data, left_out = shared_data(features, candidates)
        test = data.split("test").load()
        plan = plan_evaluation(test, data.manifest.task, params.evaluation)
        methods = [
            EvaluatedMethod(c.name, {seed: evaluate_predictor(model.predict, plan) for seed, model in c.models.items()})
            for c in candidates
        ]
        results = Results(
            plan,
            (*methods, *_baselines(data, plan)),
            against=(RIDGE, *([candidates[folders.index(against)].name] if against else [])),
            notes=tuple(_notes(plan, len(test), left_out, params)),
        )
        metrics = to_metrics(results)
        write_file(step.folder / METRICS, to_json(metrics))
        write_file(step.folder / HEADLINE, to_json({results.primary: round(metrics[results.primary], 2)}))
        write_file(step.folder / "regimes.csv", to_csv(results))
        write_file(step.folder / "missing_rates.csv", to_rates_csv(results))
        write_file(step.folder / REPORT, to_markdown(results))
        step.look_at = REPORT
        (step.folder / "figures").mkdir()
        if params.evaluation.figures:
            for name, png in draw_figures(results, candidates):
                write_file(step.folder / "figures" / f"{name}.png", png)
    return EvaluationResult(metrics)


def _baselines(data: FeatureSet, plan: EvaluationPlan) -> list[EvaluatedMethod]:
    """Evaluate ridge on the same rows; a modality that is no vector is made one."""
    train, classes = as_vectors(data.split("train").mapped()), len(data.manifest.classes)
    plan = replace(plan, rows=as_vectors(plan.rows), damaged=as_vectors(plan.damaged))
    by_pattern = PatternRidge(train, classes)
    predictors: dict[str, PatternRidge | ImputedRidge] = {
        RIDGE: by_pattern,
        "zero imputation": ImputedRidge.beside(by_pattern, with_mean=False),
        "mean imputation": ImputedRidge.beside(by_pattern, with_mean=True),
    }
    return [
        EvaluatedMethod(name, {"": evaluate_predictor(predictor.predict, plan)}, baseline=True)
        for name, predictor in predictors.items()
    ]


def _notes(plan: EvaluationPlan, test_rows: int, left_out: list[str], params: Params) -> list[str]:
    notes = []
    if left_out:
        notes.append(f"Not shown to any method, because not every model takes it: {', '.join(left_out)}.")
    if empty := test_rows - len(plan.rows):
        notes.append(f"{empty} of {test_rows} test rows have none of these modalities and are left out.")
    if plan.rates_left_out:
        rates = ", ".join(f"{rate:g}" for rate in plan.rates_left_out)
        largest = (len(plan.modalities) - 1) / len(plan.modalities)
        notes.append(
            f"Missing rates η that are left out: {rates}. Every row keeps one of its modalities, so that with "
            f"{', '.join(plan.modalities)} a rate is at most {largest:.2g}."
        )
    for regime in plan.regimes:
        if regime.rate is not None and regime.name != f"η={regime.rate:g}":
            notes.append(f"{regime.name} is out of reach and was taken as η={regime.rate:.3f}.")
        if regime.kind == "fixed" and regime.rows < len(plan.rows):
            notes.append(f"{regime.name}: only the {regime.rows} rows that have any of it.")
    damaged = 100 * params.evaluation.corruption.share
    notes.append(f"Corruption damages {damaged:g} % of the rows; baselines are fitted on clean train rows.")
    return notes

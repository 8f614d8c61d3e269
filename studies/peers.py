"""`python -m studies.peers FEATURES …`: our backbones beside what one would otherwise pick, on any FeatureSets.

Peers: ridge, support vectors and (for classes) logistic regression, one for each set of modalities; histogram gradient
boosting with NaN for what is missing, trained on each row whole and once with random modalities missing. Strengths of
the second and third are chosen on the valid split. All are then fitted on train and valid, but for the networks of
joint, which choose their epoch on valid; the lattice chooses by folds of both.

Each method is scored on all modalities (full) and on the averages over fixed patterns (FIX) and over missing rates
(MR), with 95 % intervals over groups of test rows. A method whose difference to the lattice has an interval, over the
same groups, that leaves out zero is marked ▲ (better) or ▼ (worse than the lattice). `--write FILE` puts the tables
between two marks of a page.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from mbd.cli import run_command
from mbd.evaluation.baseline import PatternRidge
from mbd.evaluation.regimes import EvaluationPlan, plan_evaluation, regime_outputs
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.files import write_file
from mbd.markdown import table
from mbd.model.predictor import Model
from mbd.params import load_params
from mbd.randomness import stream
from mbd.registry import BACKBONES
from mbd.tensors import Array

Predictor = Callable[[Mapping[str, Array]], Array]
Values = dict[tuple[str, str], Array]
"""for each regime and metric, a value of each test row whose mean is the metric"""

COLUMNS = ("full", "FIX", "MR")
KINDS = {"full": "full", "fixed": "FIX", "rate": "MR"}
METRICS = {"regression": {"acc2": "Acc2", "mae": "MAE"}, "classification": {"wa": "WA", "ua": "UA"}}
MARKS = ("<!-- peers -->", "<!-- /peers -->")
RATES = (0.1, 0.3, 0.5, 0.7)
_RESAMPLES = 1000
_STRENGTHS = (0.01, 0.1, 1.0, 10.0)


def ours(data: FeatureSet, backbone: str) -> Predictor:
    """Train a backbone with its defaults."""
    kind = BACKBONES.get(backbone)
    with tempfile.TemporaryDirectory() as work:
        params = load_params(None, [f"model.backbone={backbone}", "model.lattice.splits=train+valid"])
        found = kind.train(data, params, work=Path(work), progress=False)
    return Model(found.record, kind.load(found.record, found.tensors)).predict


@dataclass(frozen=True)
class OfPatterns:
    """A scikit-learn estimator for each set of modalities; `make(strength)` builds one."""

    train: Rows
    valid: Rows
    classes: int
    make: Callable[[float], Any]
    _fitted: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def predict(self, features: Mapping[str, Array]) -> Array:
        """Return a score for each row, or ones at the predicted classes."""
        shown = tuple(features)
        if shown not in self._fitted:
            self._fitted[shown] = self._fit(shown)
        answers: Array = self._fitted[shown].predict(np.hstack(list(features.values())))
        found: Array = np.eye(self.classes)[answers] if self.classes else answers
        return found

    def _fit(self, shown: tuple[str, ...]) -> Any:  # noqa: ANN401 -- an estimator
        (x, y), (x_valid, y_valid) = (_having(rows, shown) for rows in (self.train, self.valid))

        def loss(strength: float) -> float:
            answers = self.make(strength).fit(x, y).predict(x_valid)
            return float((answers != y_valid).mean() if self.classes else np.abs(answers - y_valid).mean())

        best = min(_STRENGTHS, key=loss)
        return self.make(best).fit(np.vstack([x, x_valid]), np.concatenate([y, y_valid]))


def boosting(train: Rows, valid: Rows, classes: int) -> Predictor:
    """Return histogram gradient boosting on all modalities, NaN for those that are missing."""
    rows, names = Rows.joined([train, valid]), tuple(train.features)
    there = np.stack([rows.available[m] for m in names], axis=1)
    hidden = there & (stream(0, "peers", "boosting").random(there.shape) < 0.5)
    inputs = np.vstack([_with_nan(rows.features, bits, names) for bits in (there, hidden)])
    labels = np.concatenate([rows.labels, rows.labels])
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    fitted = kind(max_iter=150, learning_rate=0.08, max_leaf_nodes=15, l2_regularization=1.0, random_state=0)
    fitted.fit(inputs, labels)
    widths = {m: x.shape[1] for m, x in train.features.items()}

    def predict(features: Mapping[str, Array]) -> Array:
        n = len(next(iter(features.values())))
        x = np.hstack([features.get(m, np.full((n, widths[m]), np.nan, np.float32)) for m in names])
        answers: Array = fitted.predict_proba(x) if classes else fitted.predict(x)
        return answers

    return predict


def methods(data: FeatureSet) -> Iterator[tuple[str, Predictor]]:
    """Yield each method, trained."""
    train, valid, classes = data.split("train").load(), data.split("valid").load(), len(data.manifest.classes)
    yield "lattice", ours(data, "lattice")
    yield "joint", ours(data, "joint")
    yield "ridge", PatternRidge(Rows.joined([train, valid]), classes).predict
    yield "gradient boosting", boosting(train, valid, classes)
    support = OfPatterns(train, valid, classes, lambda c: _scaled(SVC(C=10 * c) if classes else SVR(C=c)))
    yield "support vectors", support.predict
    if classes:
        logistic = OfPatterns(train, valid, classes, lambda c: _scaled(LogisticRegression(C=c / 10, max_iter=300)))
        yield "logistic", logistic.predict


def _scaled(estimator: Any) -> Any:  # noqa: ANN401 -- an estimator
    return make_pipeline(StandardScaler(), estimator)


def _having(rows: Rows, shown: tuple[str, ...]) -> tuple[Array, Array]:
    there = np.all([rows.available[m] for m in shown], axis=0)
    return np.hstack([rows.features[m][there] for m in shown]), rows.labels[there]


def _with_nan(features: Mapping[str, Array], there: Array, names: tuple[str, ...]) -> Array:
    return np.hstack([np.where(there[:, k, None], features[m], np.float32(np.nan)) for k, m in enumerate(names)])


def row_values(predict: Predictor, plan: EvaluationPlan) -> Values:
    """Return the values of each row, averaged over the regimes of each kind."""
    truth = plan.rows.labels
    found: dict[tuple[str, str], list[Array]] = {}
    for regime, outputs in zip(plan.regimes, regime_outputs(predict, plan), strict=True):
        shown: Array = np.any(regime.shown, axis=1)
        if plan.task == "regression":
            right = np.where(shown, 100.0 * ((outputs >= 0) == (truth >= 0)), 0)
            values = {"acc2": right, "mae": np.where(shown, np.abs(outputs - truth), 0)}
        else:
            right = np.where(shown, 100.0 * (outputs.argmax(1) == truth), 0)
            share = np.bincount(truth[shown], minlength=outputs.shape[1]) / shown.sum()
            values = {"wa": right, "ua": right / (share[truth] * np.count_nonzero(share))}
        for metric, value in values.items():
            found.setdefault((KINDS[regime.kind], metric), []).append(value * len(shown) / shown.sum())
    return {key: np.mean(parts, axis=0) for key, parts in found.items()}


def interval(values: Array, groups: Array, seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the mean, by resampling whole groups."""
    _, member = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(member, weights=values), np.bincount(member)
    drawn = stream(seed, "peers", "groups").integers(0, len(sums), (_RESAMPLES, len(sums)))
    low, high = np.percentile(sums[drawn].sum(1) / counts[drawn].sum(1), [2.5, 97.5])
    return float(low), float(high)


def compare(folder: Path) -> str:
    """Return the table of one FeatureSet."""
    data = FeatureSet.open(folder)
    settings = load_params(None).evaluation.model_copy(update={"missing_rates": RATES})
    plan = plan_evaluation(data.split("test").load(), data.manifest.task, settings)
    metrics, groups = METRICS[data.manifest.task], plan.rows.groups
    found = {name: row_values(predict, plan) for name, predict in methods(data)}
    cells = [(column, metric) for column in COLUMNS for metric in metrics if (column, metric) in found["lattice"]]
    beside = found["lattice"]
    lines = [[name, *(cell(own[c], beside[c], groups, c[1]) for c in cells)] for name, own in found.items()]
    header = [f"{data.manifest.name}, {len(plan.rows)} test rows", *(f"{c} {metrics[m]}" for c, m in cells)]
    return table(header, lines)


def cell(values: Array, beside: Array, groups: Array, metric: str) -> str:
    """Return a mean with its interval, and a mark where it differs from that of another method on the same rows."""
    digits, sign = (3, -1) if metric == "mae" else (1, 1)
    low, high = interval(values, groups)
    better, worse = interval(sign * (values - beside), groups)
    mark = " ▲" if better > 0 else " ▼" if worse < 0 else ""
    return f"{values.mean():.{digits}f} ({low:.{digits}f} … {high:.{digits}f}){mark}"


def written(page: str, tables: Sequence[str]) -> str:
    """Return the page with the tables between its two marks."""
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    inside = "\n\n".join(tables)
    return f"{before}{MARKS[0]}\n{inside}\n{MARKS[1]}{after}"


@click.command()
@click.argument("features", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--write", type=click.Path(path_type=Path, exists=True), help="A page that has the marks of the tables.")
def main(features: tuple[Path, ...], write: Path | None) -> None:
    """Compare lattice and joint with other methods on FeatureSets."""
    tables = []
    for folder in features:
        tables.append(compare(folder))
        click.echo(tables[-1] + "\n")
    if write:
        write_file(write, written(write.read_text(encoding="utf-8"), tables).encode())


if __name__ == "__main__":
    run_command(main, "python -m studies.peers")

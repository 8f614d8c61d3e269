"""The methods of the comparison: our backbones with their defaults, and what one would otherwise pick, tuned.

Ridge, support vectors and (for classes) logistic regression are fitted for each set of modalities; histogram gradient
boosting takes NaN for what is missing, and is trained on each row whole and once more with random modalities hidden.
Their settings are chosen by folds of whole groups of the train and valid rows, by MAE or by the sum of WA, UA and
weighted F1, for each set of modalities; where there are more rows than 1,000, by whole groups of about so many. Then
they are fitted to all train and valid rows. The lattice chooses by folds of the same rows; joint is trained on train
and chooses its epoch on valid.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from mbd.evaluation.metrics import classification_metrics
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.model.predictor import Model
from mbd.params import load_params
from mbd.randomness import stream
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.lattice.ridge import assign_folds
from studies.comparison import Predictor

Maker = Callable[..., Any]
"""builds an estimator of scikit-learn from a setting"""
Setting = Mapping[str, float]

OURS = ("lattice", "joint")
"""backbones; the others are compared with the first"""
_FOLDS = 3
_MOST_ROWS = 1000


def every(**values: Sequence[float]) -> list[Setting]:
    """Return every combination of values."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


GRIDS: Mapping[str, list[Setting]] = {
    "ridge": every(alpha=[10.0**power for power in range(6)]),
    "gradient boosting": every(learning_rate=[0.1], max_leaf_nodes=[4, 15]),
    "support vectors": every(C=[0.1, 1.0, 10.0], width=[0.3, 1.0]),
    "logistic": every(C=[0.0003, 0.003, 0.03, 0.3, 3.0]),
}


def makers(classes: int) -> dict[str, Maker]:
    """Return how the estimator of each peer is built."""

    def ridge(alpha: float) -> object:
        return _scaled(RidgeClassifier(alpha=alpha) if classes else Ridge(alpha=alpha))

    def boosting(learning_rate: float, max_leaf_nodes: int) -> object:
        kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        return kind(max_iter=100, max_bins=63, learning_rate=learning_rate, max_leaf_nodes=max_leaf_nodes)

    def support(C: float, width: float) -> object:  # noqa: N803 -- the name that everyone knows
        return _Support(C, width, classes)

    def logistic(C: float) -> object:  # noqa: N803
        return _scaled(LogisticRegression(C=C, max_iter=300))

    found: dict[str, Maker] = {"ridge": ridge, "gradient boosting": boosting, "support vectors": support}
    return found | ({"logistic": logistic} if classes else {})


class _Support:
    """Support vectors with a kernel width in units of the usual one, 1 / columns."""

    def __init__(self, c: float, width: float, classes: int) -> None:
        self._kind, self._c, self._width = SVC if classes else SVR, c, width

    def fit(self, x: Array, y: Array) -> Any:  # noqa: ANN401 -- an estimator
        return _scaled(self._kind(C=self._c, gamma=self._width / x.shape[1])).fit(x, y)


def _scaled(estimator: Any) -> Any:  # noqa: ANN401 -- an estimator
    return make_pipeline(StandardScaler(), estimator)


def scores(fitted: Any, x: Array, classes: int) -> Array:  # noqa: ANN401 -- an estimator
    """Return a score for each row; of classes probabilities, ridge's scores, or ones at the answers."""
    if not classes:
        answers: Array = fitted.predict(x)
        return answers
    if hasattr(fitted, "predict_proba"):
        own = fitted.predict_proba(x)
    elif isinstance(fitted[-1], RidgeClassifier):
        decided = fitted.decision_function(x)
        own = (1 + (np.stack([-decided, decided], axis=1) if decided.ndim == 1 else decided)) / 2
    else:
        own = fitted.predict(x)[:, None] == fitted.classes_
    found = np.zeros((len(x), classes))
    found[:, fitted.classes_] = own
    return found


def choose(make: Maker, choices: Sequence[Setting], x: Array, y: Array, groups: Array, classes: int) -> Setting:
    """Return the setting with the least error out of fold."""
    parts = -(-len(y) // _MOST_ROWS)
    some = assign_folds(groups, parts, 0) == 0
    x, y, fold_of = x[some], y[some], assign_folds(groups[some], _FOLDS, 0)

    def loss(setting: Setting) -> float:
        found = np.zeros((len(y), classes) if classes else len(y))
        for fold in range(_FOLDS):
            out = fold_of == fold
            found[out] = scores(make(**setting).fit(x[~out], y[~out]), x[out], classes)
        if classes:
            return -sum(classification_metrics(y, found.argmax(1)).values())
        return float(np.abs(found - y).mean())

    return min(choices, key=loss)


@dataclass(frozen=True)
class OfPatterns:
    """An estimator for each set of modalities, chosen and fitted when it is first asked for."""

    rows: Rows
    classes: int
    make: Maker
    choices: Sequence[Setting]
    _fitted: dict[tuple[str, ...], Any] = field(default_factory=dict)

    def predict(self, features: Mapping[str, Array]) -> Array:
        """Return what the estimator of these modalities answers."""
        shown = tuple(features)
        if shown not in self._fitted:
            there = np.all([self.rows.available[m] for m in shown], axis=0)
            x, y = np.hstack([self.rows.features[m][there] for m in shown]), self.rows.labels[there]
            chosen = choose(self.make, self.choices, x, y, self.rows.groups[there], self.classes)
            self._fitted[shown] = self.make(**chosen).fit(x, y)
        return scores(self._fitted[shown], np.hstack(list(features.values())), self.classes)


def boosting(rows: Rows, classes: int, make: Maker, choices: Sequence[Setting]) -> Predictor:
    """Return histogram gradient boosting on all modalities, NaN for those that are missing."""
    names = tuple(rows.features)
    there = np.stack([rows.available[m] for m in names], axis=1)
    hidden = there & (stream(0, "peers", "boosting").random(there.shape) < 0.5)
    x = np.vstack([_with_nan(rows.features, bits, names) for bits in (there, hidden)])
    y, groups = np.tile(rows.labels, 2), np.tile(rows.groups, 2)
    fitted = make(**choose(make, choices, x, y, groups, classes)).fit(x, y)
    widths = {m: x.shape[1] for m, x in rows.features.items()}

    def predict(features: Mapping[str, Array]) -> Array:
        n = len(next(iter(features.values())))
        missing = {m: np.full((n, widths[m]), np.nan, np.float32) for m in names if m not in features}
        return scores(fitted, np.hstack([features[m] if m in features else missing[m] for m in names]), classes)

    return predict


def _with_nan(features: Mapping[str, Array], there: Array, names: tuple[str, ...]) -> Array:
    return np.hstack([np.where(there[:, k, None], features[m], np.float32(np.nan)) for k, m in enumerate(names)])


def ours(data: FeatureSet, backbone: str) -> Predictor:
    """Train a backbone with its defaults."""
    kind = BACKBONES.get(backbone)
    with tempfile.TemporaryDirectory() as work:
        params = load_params(None, [f"model.backbone={backbone}", f"model.{backbone}.splits=train+valid"])
        found = kind.train(data, params, work=Path(work), progress=False)
    return Model(found.record, kind.load(found.record, found.tensors)).predict


def methods(data: FeatureSet) -> Iterator[tuple[str, Predictor]]:
    """Yield each method, trained."""
    for backbone in OURS:
        yield backbone, ours(data, backbone)
    classes = len(data.manifest.classes)
    rows = Rows.joined([data.split(name).load() for name in ("train", "valid")])
    for name, make in makers(classes).items():
        if name == "gradient boosting":
            yield name, boosting(rows, classes, make, GRIDS[name])
        else:
            yield name, OfPatterns(rows, classes, make, GRIDS[name]).predict

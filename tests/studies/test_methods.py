"""Other methods are tuned by whole groups of train and valid rows, and answer for any set of modalities."""

from pathlib import Path

import numpy as np
import pytest

from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.tensors import Array
from studies import methods
from tests.features.build import synthetic_set

CLASSES = ("features.source.synthetic.classes=3", "features.source.synthetic.skew=0.5")


class Remembers:
    """An estimator that knows the rows it was fitted to by heart, and answers zero for others."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def fit(self, x: Array, y: Array) -> "Remembers":
        self._known = dict(zip(x[:, 0].tolist(), y.tolist(), strict=True))
        return self

    def predict(self, x: Array) -> Array:
        return self._scale * np.array([self._known.get(value, 0.0) for value in x[:, 0].tolist()])


def test_a_setting_is_chosen_by_rows_whose_group_was_left_out() -> None:
    groups = np.repeat(np.arange(30), 4)
    x, y = groups[:, None].astype(float), (groups % 3 - 1).astype(float)
    choices = methods.every(scale=[-1.0, 1.0])
    assert methods.choose(Remembers, choices, x, y, np.arange(120), 0) == {"scale": 1.0}, "a row of the group is known"
    assert methods.choose(Remembers, choices, x, y, groups, 0) == {"scale": -1.0}, "all err alike: the first"


def test_many_rows_are_chosen_by_some_whole_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "_MOST_ROWS", 50)
    seen: list[int] = []

    class Counts(Remembers):
        def fit(self, x: Array, y: Array) -> Remembers:
            seen.append(len(x))
            return super().fit(x, y)

    groups = np.repeat(np.arange(60), 4)
    methods.choose(Counts, [{"scale": 1.0}], groups[:, None].astype(float), np.zeros(240), groups, 0)
    assert sum(seen) == 2 * 48, "each of three fits leaves a third of twelve groups out"


@pytest.mark.parametrize("settings", [(), CLASSES], ids=["regression", "classes"])
def test_every_peer_answers_for_every_set_of_modalities(tmp_path: Path, settings: tuple[str, ...]) -> None:
    data = FeatureSet.open(synthetic_set(tmp_path / "set", *settings))
    rows = Rows.joined([data.split(name).load() for name in ("train", "valid")])
    classes, test = len(data.manifest.classes), data.split("test").load()
    makers = methods.makers(classes)
    assert list(makers) == ["ridge", "gradient boosting", "support vectors", *(["logistic"] if classes else [])]
    for name, make in makers.items():
        few = methods.GRIDS[name][:2]
        if name == "gradient boosting":
            predict = methods.boosting(rows, classes, make, few)
        else:
            predict = methods.OfPatterns(rows, classes, make, few).predict
        for shown in (("text",), ("text", "audio", "visual")):
            found = predict({m: test.features[m] for m in shown})
            assert found.shape == ((len(test), classes) if classes else (len(test),)), name
            assert np.isfinite(found).all(), name
            assert _better_than_chance(found, test.labels, classes), name


def _better_than_chance(found: Array, truth: Array, classes: int) -> bool:
    if classes:
        return bool((found.argmax(1) == truth).mean() > np.bincount(truth).max() / len(truth) - 0.1)
    return bool(np.corrcoef(found, truth)[0, 1] > 0.2)


def test_a_class_that_a_fold_lacks_has_no_probability() -> None:
    x = np.arange(12.0)[:, None]
    for name, make in methods.makers(4).items():
        fitted = make(**methods.GRIDS[name][0]).fit(x, np.tile([0, 2, 3], 4))
        found = methods.scores(fitted, x, 4)
        assert found.shape == (12, 4), name
        assert not found[:, 1].any(), name


def test_two_classes_have_two_scores_of_ridge() -> None:
    x = np.linspace(-1, 1, 20)[:, None]
    fitted = methods.makers(2)["ridge"](alpha=1.0).fit(x, (x[:, 0] > 0).astype(int))
    found = methods.scores(fitted, x, 2)
    np.testing.assert_allclose(found.sum(1), 1)
    assert (found.argmax(1) == (x[:, 0] > 0)).all()

"""Metrics of a comparison are those of evaluation, intervals are of groups, and differences are paired."""

from pathlib import Path

import numpy as np
import pytest

from mbd.evaluation.regimes import Condition, evaluate_predictor
from mbd.evaluation.ridge import PatternRidge
from mbd.features.contract import FeatureSet
from mbd.tensors import Array
from studies.comparison import columns, estimate, planned, resampled, row_values
from tests.features.build import synthetic_set

CLASSES = ("features.source.synthetic.classes=3", "features.source.synthetic.skew=0.5")


@pytest.mark.parametrize("settings", [(), CLASSES], ids=["regression", "classes"])
def test_metrics_are_those_of_an_evaluation(tmp_path: Path, settings: tuple[str, ...]) -> None:
    data = FeatureSet.open(synthetic_set(tmp_path / "set", *settings))
    plan = planned(data.split("test").load(), data.manifest.task)
    ridge = PatternRidge(data.split("train").load(), len(data.manifest.classes))
    expected = evaluate_predictor(ridge.predict, plan)
    found = row_values(ridge.predict, plan)
    assert len(columns(plan.task, found)) == (10 if settings else 6)
    for (column, metric), values in found.items():
        assert resampled(values, plan.rows.groups, metric)[0] == pytest.approx(expected[Condition(column)][metric])


def as_values(errors: Array) -> Array:
    """What is summed for a mean of so many rows, in one regime."""
    return np.stack([errors, np.ones(len(errors))], axis=1)[:, None]


def test_an_interval_is_wider_where_rows_of_a_group_are_alike() -> None:
    draw = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    alone, alike = draw.standard_normal(400), np.repeat(draw.standard_normal(40), 10)
    found = [estimate(as_values(x), as_values(x), groups, "mae") for x in (alone, alike)]
    narrow, wide = (one.high - one.low for one in found)
    assert 0.15 < narrow < 0.25
    assert wide > 2 * narrow


def test_a_small_difference_on_the_same_rows_is_beyond_noise_and_a_method_is_not_better_than_itself() -> None:
    draw = np.random.default_rng(1)
    errors, groups = np.abs(draw.standard_normal(300)), np.arange(300)
    less = as_values(errors - 0.05 + 0.01 * draw.standard_normal(300))
    beside = as_values(errors)
    marks = [estimate(*pair, groups, "mae").mark for pair in ((less, beside), (beside, less), (beside, beside))]
    assert marks == [" ▲", " ▼", ""]
    assert estimate(less, beside, groups, "acc2").mark == " ▼", "less of an accuracy is worse"


def test_answers_without_probabilities_have_no_calibration_error(tmp_path: Path) -> None:
    data = FeatureSet.open(synthetic_set(tmp_path / "set", *CLASSES))
    plan = planned(data.split("test").load(), "classification")

    def answers(features: dict[str, Array]) -> Array:
        return np.eye(3)[np.arange(len(next(iter(features.values())))) % 3]

    values = row_values(answers, plan)  # type: ignore[arg-type]
    assert str(estimate(values["full", "ece"], values["full", "ece"], plan.rows.groups, "ece")) == "–"
    assert "…" in str(estimate(values["full", "wa"], values["full", "wa"], plan.rows.groups, "wa"))

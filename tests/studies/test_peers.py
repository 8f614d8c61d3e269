"""The comparison with peers: the means are the metrics, intervals are of groups, and a page keeps what is around it."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mbd.evaluation.baseline import PatternRidge
from mbd.evaluation.regimes import Condition, evaluate_predictor, plan_evaluation
from mbd.features.contract import FeatureSet
from mbd.params import load_params
from studies import peers
from tests.features.build import synthetic_set

CLASSES = ("features.source.synthetic.classes=3", "features.source.synthetic.skew=0.5")


@pytest.mark.parametrize("settings", [(), CLASSES], ids=["regression", "classes"])
def test_means_of_row_values_are_the_metrics(tmp_path: Path, settings: tuple[str, ...]) -> None:
    data = FeatureSet.open(synthetic_set(tmp_path / "set", *settings))
    plan = plan_evaluation(data.split("test").load(), data.manifest.task, load_params(None).evaluation)
    ridge = PatternRidge(data.split("train").load(), len(data.manifest.classes))
    expected = evaluate_predictor(ridge.predict, plan)
    found = peers.row_values(ridge.predict, plan)
    assert len(found) == 6
    for (column, metric), values in found.items():
        assert values.mean() == pytest.approx(expected[Condition(column)][metric])


def test_an_interval_is_wider_where_rows_of_a_group_are_alike() -> None:
    draw = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    alone, alike = draw.standard_normal(400), np.repeat(draw.standard_normal(40), 10)
    narrow, wide = (np.subtract(*peers.interval(values, groups)[::-1]) for values in (alone, alike))
    assert 0.15 < narrow < 0.25
    assert wide > 2 * narrow


def test_every_method_is_in_the_table_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, page = synthetic_set(tmp_path / "set", *CLASSES), tmp_path / "page.md"
    page.write_text(f"before\n\n{peers.MARKS[0]}\nold\n{peers.MARKS[1]}\n\nafter\n", encoding="utf-8")
    monkeypatch.setattr(peers, "ours", lambda data, _: PatternRidge(data.split("train").load(), 3).predict)
    result = CliRunner().invoke(peers.main, [str(folder), "--write", str(page)], catch_exceptions=False)
    assert result.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    names = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]
    assert names[2:] == ["lattice", "joint", "ridge", "gradient boosting", "support vectors", "logistic"]
    lattice, joint = (line for line in text.splitlines() if "lattice" in line or "joint" in line)
    assert "▲" not in joint
    assert lattice.split("|")[2:] == joint.split("|")[2:]

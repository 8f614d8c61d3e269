"""The studies of fixed patterns and of missing rates."""

from pathlib import Path
from types import ModuleType

import pytest

from studies import missing_patterns, missing_rates
from studies.layout import Layout
from studies.printed import AVERAGE
from studies.scores import mean, read_scores
from tests.studies.cells import finding, verdict, with_scores, written


@pytest.mark.parametrize("module", [missing_patterns, missing_rates])
def test_the_same_cells_give_the_same_bytes(module: ModuleType, sentiment: Layout, tmp_path: Path) -> None:
    first, second = (written(module.study(sentiment), tmp_path / name) for name in "ab")
    assert first == second
    assert any(name.endswith(".png") for name in first)


@pytest.mark.parametrize(("module", "average"), [(missing_patterns, "FIX"), (missing_rates, "MR")])
def test_the_average_is_that_of_the_rows(module: ModuleType, average: str, sentiment: Layout) -> None:
    ours = module.study(sentiment).tables[0]
    *rows, last = ours.rows
    assert last[0] == average
    for column in range(1, len(ours.header)):
        assert last[column].mean == pytest.approx(sum(row[column].mean for row in rows) / len(rows), abs=1e-3)


@pytest.mark.parametrize("module", [missing_patterns, missing_rates])
def test_the_printed_average_is_set_beside_its_rows(module: ModuleType, sentiment: Layout, talks: Layout) -> None:
    for layout in (sentiment, talks):
        found = module.study(layout)
        printed = found.tables[-1]
        assert printed.printed
        assert [row[0] for row in printed.rows][-2:] == [AVERAGE, "Avg. of these rows"]
        assert verdict(found, "row Avg.") == "does not hold"


@pytest.mark.parametrize(("module", "kind"), [(missing_patterns, "fixed"), (missing_rates, "rate")])
def test_one_regime_that_is_lost_is_no_consistent_lead(
    module: ModuleType, kind: str, sentiment: Layout, tmp_path: Path
) -> None:
    def ahead(line: dict[str, str]) -> None:
        if line["method"] == "joint" and line["kind"] in (kind, "average"):
            line["acc2"] = f"{99 + int(line['seed']) / 10:.4f}"

    def but_once(line: dict[str, str]) -> None:
        ahead(line)
        if line["method"] == "joint" and line["regime"] in ("visual", "η=0.4"):
            line["acc2"] = "1.0000"

    found = module.study(with_scores(sentiment, "mosi", tmp_path / "ahead", ahead))
    assert verdict(found, "consistently outperforms") == "holds"
    assert verdict(found, "reliable when inputs are partial") == "holds"
    found = module.study(with_scores(sentiment, "mosi", tmp_path / "once", but_once))
    assert verdict(found, "consistently outperforms") == "does not hold"
    assert "1.0" in finding(found, "consistently outperforms").reason


def test_filling_in_is_judged_against_imputation(sentiment: Layout) -> None:
    scores = read_scores(sentiment.evaluation("mosi"))
    found = finding(missing_patterns.study(sentiment), "reliable when inputs are partial")
    imputed = [method for method in scores.others if "imputation" in method.name]
    gain = mean(scores.ours, "FIX", "acc2") - max(mean(method, "FIX", "acc2") for method in imputed)
    assert found.verdict == ("holds" if gain > 0 else "does not hold")
    assert f"{gain:+.1f} points" in found.reason


def test_two_modalities_have_two_patterns_and_fewer_rates(talks: Layout) -> None:
    patterns = missing_patterns.study(talks)
    assert [row[0] for row in patterns.tables[0].rows] == ["voice", "face", "FIX"]
    rates = missing_rates.study(talks)
    assert [row[0] for row in rates.tables[0].rows] == ["η=0.1", "η=0.2", "η=0.3", "η=0.4", "η=0.5", "MR"]
    assert "left out: 0.6, 0.7" in rates.tables[0].note
    assert verdict(patterns, "printed Acc2") == "not comparable"
    assert verdict(rates, "printed Acc2") == "not comparable"


def test_the_order_of_modalities_in_a_pattern_does_not_count(sentiment: Layout, tmp_path: Path) -> None:
    def swapped(line: dict[str, str]) -> None:
        line["regime"] = "+".join(reversed(line["regime"].split("+")))

    found = finding(missing_patterns.study(with_scores(sentiment, "mosi", tmp_path, swapped)), "printed Acc2")
    assert "visual+audio" in found.reason
    assert "(printed 69.0)" in found.reason

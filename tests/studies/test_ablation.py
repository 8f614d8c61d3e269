"""The study of variants."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mbd.evaluation.results import Spread
from studies import printed
from studies.ablation import study
from studies.layout import Layout
from studies.outcome import StudyOutcome
from tests.studies.cells import finding, verdict, with_scores, written


@pytest.fixture
def utility(sentiment: Layout, tmp_path: Path) -> Callable[..., StudyOutcome]:
    """A study in which the variants lose given points of Acc2, in both regimes."""

    def made(**points: float) -> StudyOutcome:
        lost = {name.replace("_", "-"): value for name, value in points.items()}

        def change(line: dict[str, str]) -> None:
            if line["kind"] == "average":
                noise = int(line["seed"] or 0) * (0.1 if line["method"] == "joint" else 0.12)
                line["acc2"] = f"{80 + noise - lost.get(line['method'], 0):.4f}"

        return study(with_scores(sentiment, "ablation", tmp_path / str(len(list(tmp_path.iterdir()))), change))

    return made


def test_the_same_cells_give_the_same_bytes(sentiment: Layout, tmp_path: Path) -> None:
    first, second = (written(study(sentiment), tmp_path / name) for name in "ab")
    assert first == second


def test_seven_rows_in_the_papers_order_two_of_them_the_same_model(sentiment: Layout) -> None:
    ours, theirs = study(sentiment).tables
    assert [row[0] for row in ours.rows] == [row[0] for row in theirs.rows] == list(printed.VARIANTS.values())
    by_name = {str(row[0]): list(row[1:]) for row in ours.rows}
    assert by_name["w/o controlled unlearning module"] == by_name["MBD (FULL)"]
    assert isinstance(by_name["MBD (FULL)"][0], Spread)
    assert "(p = " in str(by_name["w/o fusion module"][-1])
    assert verdict(study(sentiment), "controlled unlearning") == "does not hold"


def test_parts_as_the_paper_has_them(utility: Callable[..., StudyOutcome]) -> None:
    found = utility(no_property=4, no_reconstruction=3, no_fusion=2, no_property_no_reconstruction=6, bare=7)
    assert verdict(found, "account for the gains") == "holds"
    assert verdict(found, "reconstruction module make the largest individual contributions.") == "holds"
    assert verdict(found, "does the most harm") == "holds"
    assert "10 of 10 changes are losses, 10 of them with p < 0.05 (3 seeds)" in finding(found, "the gains").reason


def test_parts_that_are_worth_nothing(utility: Callable[..., StudyOutcome]) -> None:
    found = utility(no_property=-1, no_reconstruction=1, no_fusion=5, no_property_no_reconstruction=2, bare=6)
    assert verdict(found, "account for the gains") == "does not hold"
    assert verdict(found, "reconstruction module make the largest individual contributions.") == "does not hold"
    assert "fusion 5.0" in finding(found, "contributions.").reason
    assert verdict(found, "does the most harm") == "does not hold"


def test_the_papers_own_order_has_fusion_before_reconstruction(sentiment: Layout) -> None:
    found = finding(study(sentiment), "in the paper's own table")
    assert found.verdict == "does not hold"
    assert "property pathway 3.7, fusion 3.1 and reconstruction 2.5" in found.reason


def test_one_variant_and_one_seed(talks: Layout) -> None:
    found = study(talks)
    assert len(found.tables[0].rows) == 3
    assert "p" not in str(found.tables[0].rows[0][-1])
    assert verdict(found, "contributions.") == "not comparable"
    assert verdict(found, "does the most harm") == "not comparable"


def test_a_variant_that_the_paper_does_not_have_is_shown_by_its_name(sentiment: Layout, tmp_path: Path) -> None:
    def renamed(line: dict[str, str]) -> None:
        line["method"] = "small" if line["method"] == "bare" else line["method"]

    layout = with_scores(sentiment, "ablation", tmp_path, renamed)
    plan = layout.plan.model_copy(update={"variants": ("small", "no-fusion")})
    rows = study(Layout(plan, layout.root)).tables[0].rows
    assert [row[0] for row in rows][:2] == ["small", "w/o fusion module"]

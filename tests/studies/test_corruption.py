"""The study of corrupted rows."""

from pathlib import Path

import pytest

from studies.corruption import deviations, judge_drift, study
from studies.layout import Layout
from studies.scores import loss_by_corruption, read_scores
from tests.studies.cells import finding, verdict, with_scores, written


def costing(ours: float, others: float, sentiment: Layout, folder: Path) -> Layout:
    """A layout in which corruption costs these points."""

    def change(line: dict[str, str]) -> None:
        lost = (ours if line["method"] == "joint" else others) if line["corrupted"] == "true" else 0.0
        line["acc2"] = f"{80 - lost:.4f}"

    return with_scores(sentiment, "mosi", folder, change)


def test_the_same_cells_give_the_same_bytes(sentiment: Layout, tmp_path: Path) -> None:
    first, second = (written(study(sentiment), tmp_path / name) for name in "ab")
    assert first == second
    assert {"corruption.png", "property-drift.png"} <= first.keys()


@pytest.mark.parametrize(
    ("ours", "others", "modest", "stabilised"),
    [(0.4, 0.9, "holds", "holds"), (3.0, 0.9, "does not hold", "does not hold"), (0.4, 0.2, "holds", "does not hold")],
)
def test_loss_is_judged_by_print_and_by_other_methods(
    ours: float, others: float, modest: str, stabilised: str, sentiment: Layout, tmp_path: Path
) -> None:
    found = study(costing(ours, others, sentiment, tmp_path))
    assert verdict(found, "modest") == modest
    assert verdict(found, "stabilise") == stabilised
    assert f"{ours:.1f} ± 0.0 in FIX (printed 0.8)" in finding(found, "modest").reason


def test_the_table_has_clean_and_corrupted_rows_of_every_method(sentiment: Layout) -> None:
    scores = read_scores(sentiment.evaluation("mosi"))
    ours = study(sentiment).tables[0]
    assert len(ours.rows) == 2 * len(scores.methods)
    corrupted, clean = ours.rows[0][2], ours.rows[1][2]
    lost = loss_by_corruption(scores.ours, "FIX", "acc2").mean
    assert clean.mean - corrupted.mean == pytest.approx(lost)  # type: ignore[union-attr]


def test_drift_is_held_against_what_is_printed() -> None:
    for value, expected in ((0.001, "holds"), (0.01, "does not hold")):
        found = judge_drift([{"modality": "text", "clean_to_corrupted": value}])
        assert found.verdict == expected
    assert "4.0 times what is printed" in found.reason
    assert judge_drift([]).verdict == "not comparable"


def test_drift_is_measured_on_the_first_joint_model(sentiment: Layout) -> None:
    drift = deviations(sentiment)
    assert {tuple(one) for one in drift} == {
        ("modality", "clean_to_corrupted", "property_to_clean", "property_to_corrupted")
    }
    assert all(0 < one["clean_to_corrupted"] < one["property_to_clean"] for one in drift)


def test_other_names_and_classes(talks: Layout) -> None:
    found = study(talks)
    assert [row[0] for row in found.tables[-1].rows] == ["voice", "face"]
    assert "points of WA" in finding(found, "modest").reason

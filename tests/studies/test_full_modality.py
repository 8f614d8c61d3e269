"""The study of all modalities."""

from pathlib import Path

from studies.full_modality import study
from studies.layout import Layout
from studies.scores import mean, read_scores
from tests.studies.cells import finding, verdict, with_scores, written


def test_the_same_cells_give_the_same_bytes(sentiment: Layout, tmp_path: Path) -> None:
    first, second = (written(study(sentiment), tmp_path / name) for name in "ab")
    assert first == second
    assert first.keys() == {"study.json", "report.md", "full-modality.png", "step.json"}


def test_ours_stands_beside_what_is_printed(sentiment: Layout) -> None:
    ours, theirs = study(sentiment).tables
    assert [row[0] for row in ours.rows] == [m.name for m in read_scores(sentiment.evaluation("mosi")).methods]
    assert theirs.printed
    assert ["MBD", 89.9, 89.9, 50.8, 0.62, 0.872] in [list(row) for row in theirs.rows]


def test_a_weak_model_does_not_lead_and_a_strong_one_does(sentiment: Layout, tmp_path: Path) -> None:
    def weak(line: dict[str, str]) -> None:
        if line["method"] == "joint":
            line["acc2"] = f"{10 + int(line['seed']):.4f}"

    def strong(line: dict[str, str]) -> None:
        if line["method"] == "joint":
            line["acc2"] = f"{99.5 + int(line['seed']) / 10:.4f}"

    found = study(with_scores(sentiment, "mosi", tmp_path / "weak", weak))
    assert verdict(found, "strongest method") == "does not hold"
    assert "11.0 ± 1.0" in finding(found, "strongest method").reason
    found = study(with_scores(sentiment, "mosi", tmp_path / "strong", strong))
    assert verdict(found, "strongest method") == "holds"


def test_synthetic_scores_are_not_the_papers(sentiment: Layout) -> None:
    found = finding(study(sentiment), "reaches Acc2 89.9")
    ours = mean(read_scores(sentiment.evaluation("mosi")).ours, "full", "acc2")
    assert found.verdict == "not comparable"
    assert f"Acc2 {ours:.1f} (printed 89.9)" in found.reason


def test_the_printed_margins_are_larger_than_the_text_says(sentiment: Layout) -> None:
    found = finding(study(sentiment), "1–2 percentage points")
    assert found.verdict == "does not hold"
    assert "1.7 to 3.5 points" in found.reason


def test_classes_of_one_seed(talks: Layout) -> None:
    found = study(talks)
    assert [list(table.header) for table in found.tables] == [
        ["method", "WA", "UA", "F1", "ECE"],
        ["method", "WA", "UA"],
    ]
    assert verdict(found, "significant") == "not comparable"
    assert "no numbers for “talks”" in finding(found, "reaches WA 82.0").reason

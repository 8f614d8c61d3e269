"""The comparison with peers: every method in table and figure, and a page keeps what is around the tables."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd.errors import UsageError
from mbd.evaluation.ridge import PatternRidge
from mbd.features.contract import FeatureSet
from mbd.files import read_json
from studies import __main__ as studies_command
from studies import peers
from studies.comparison import Estimate, Predictor
from studies.layout import ROOT, Layout
from studies.outcome import write_outcome
from tests.features.build import npz_arrays, small_collection, synthetic_set, write_npz
from tests.refusals import refused

CLASSES = ("features.source.synthetic.classes=3", "features.source.synthetic.skew=0.5")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two methods that are the same, in place of all."""

    def ridge(data: FeatureSet) -> Iterator[tuple[str, Predictor]]:
        for name in ("lattice", "ridge"):
            yield name, PatternRidge(data.split("train").load(), len(data.manifest.classes)).predict

    monkeypatch.setattr(peers, "methods", ridge)


def test_tables_are_put_into_the_page_and_the_report_has_a_figure_for_each_set(tmp_path: Path) -> None:
    folder, page = synthetic_set(tmp_path / "one set", *CLASSES), tmp_path / "page.md"
    file = write_npz(tmp_path / "talks.npz", npz_arrays(small_collection()))
    page.write_text(f"before\n\n{peers.MARKS[0]}\nold\n{peers.MARKS[1]}\n\nafter\n", encoding="utf-8")
    arguments = [str(folder), str(file), "--write", str(page)]
    result = CliRunner().invoke(peers.main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n\n")
    assert text.endswith("\n\nafter\n")
    assert "old" not in text
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert [line[0] for line in lines if "---" not in line[0]] == [
        *("one set, 64 test rows", "lattice", "ridge"),
        *("talks, 8 test rows", "lattice", "ridge"),
    ]
    assert lines[2][1:] == lines[3][1:]
    assert "Of 16 comparisons of another method with the lattice, 0 show it worse" in text
    assert "full ECE" in lines[0]
    report = ROOT / peers.NAME
    assert "one set, 64 test rows" in (report / "report.md").read_text()
    assert sorted(figure.name for figure in report.glob("*.png")) == ["peers-1.png", "peers-2.png"]


def test_marks_of_other_methods_are_counted_and_ours_are_not() -> None:
    cells = {("full", "wa"): " ▲", ("FIX", "wa"): " ▼", ("MR", "wa"): " ▼", ("full", "ece"): ""}
    marked = {column: Estimate(80.0, 75.0, 85.0, mark, 1) for column, mark in cells.items()}
    sets = [peers.ComparedSet(name, 30, dict.fromkeys(("lattice", "joint", "ridge"), marked)) for name in "ab"]
    assert peers.tally(sets).startswith("Of 8 comparisons of another method with the lattice, 4 show it worse")
    assert " 2 better;" in peers.tally(sets)


def test_the_main_set_of_a_plan_is_compared(sentiment: Layout) -> None:
    found = peers.study(sentiment)
    assert [row[0] for row in found.tables[0].rows] == ["lattice", "ridge"]
    assert len(found.figures) == 1


def test_a_method_without_probabilities_has_no_calibration_error(tmp_path: Path) -> None:
    nan, value = float("nan"), Estimate(80.0, 75.0, 85.0, "", 1)
    found = {
        "lattice": {("full", "wa"): value, ("FIX", "wa"): value, ("full", "ece"): value},
        "support vectors": {
            ("full", "wa"): value,
            ("FIX", "wa"): value,
            ("full", "ece"): Estimate(nan, nan, nan, "", 1),
        },
    }
    write_outcome(peers.outcome([peers.ComparedSet("talks", 30, found)]), tmp_path / "peers")
    data = read_json(tmp_path / "peers" / "study.json")["data"]["talks"]
    assert [set(own) for own in data.values()] == [{"full WA", "FIX WA", "full ECE"}, {"full WA", "FIX WA"}]
    assert "| – |" in (tmp_path / "peers" / "report.md").read_text()


def test_a_missing_file_is_named_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_npz(tmp_path / "talks.npz", npz_arrays(small_collection()))
    monkeypatch.setattr(peers, "compare", lambda *_: pytest.fail("not before all files are there"))
    with refused(UsageError, key="DATA", value="no.npz"):
        peers.run([file, Path("no.npz")])


def test_several_files_are_named_in_one_text_and_names_may_have_blanks(tmp_path: Path) -> None:
    for name in ("my talks.npz", "b.npz"):
        (tmp_path / name).write_bytes(b"")
    spaced, plain = tmp_path / "my talks.npz", tmp_path / "b.npz"
    assert studies_command.paths(str(spaced)) == [spaced]
    assert studies_command.paths(f"'{spaced}' {plain}") == [spaced, plain]
    assert studies_command.paths("rock'n'roll's.npz") == [Path("rock'n'roll's.npz")]


def test_several_files_or_a_folder_are_for_this_study_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    monkeypatch.setattr(peers, "run", seen.append)
    run = CliRunner().invoke(studies_command.main, ["--data", "a.npz b.npz"], catch_exceptions=False)
    assert run.exit_code == 0
    CliRunner().invoke(studies_command.main, ["peers", "--data", str(tmp_path)], catch_exceptions=False)
    assert seen == [[Path("a.npz"), Path("b.npz")], [tmp_path]]
    with refused(UsageError, key="DATA", value="a.npz, b.npz", hint="NAME=peers"):
        CliRunner().invoke(studies_command.main, ["ablation", "--data", "a.npz b.npz"], catch_exceptions=False)

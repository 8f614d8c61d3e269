"""What every study writes."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import UsageError
from mbd.evaluation.results import Spread
from studies.outcome import Finding, StudyOutcome, StudyTable, cell_text, markdown, write_outcome

OUTCOME = StudyOutcome(
    name="colours",
    title="Colours",
    question="Which colour?",
    tables=[
        StudyTable(
            "ours", ["colour", "share", "|B|"], [["red", Spread(0.25, 0.015, 3), 5], ["blue", None, 2.0]], [0, 2, 1]
        ),
        StudyTable("theirs", ["colour", "share"], [["red", 0.5]], note="By hand.", printed=True),
    ],
    figures={"all-colours": b"png"},
    findings=[Finding("Red is best.", "does not hold", "Blue is.")],
    data={"exact": 0.123456},
    readings=[StudyTable("clock", ["phase", "seconds"], [["all", 1.5]])],
)


def test_a_report_reads_from_question_to_verdict() -> None:
    text = markdown(OUTCOME, level=2)
    assert text.startswith("## Colours\n\nWhich colour?\n\n![Colours: all colours](all-colours.png)\n")
    assert "| red | 0.25 ± 0.01 | 5 |" in text or "| red | 0.25 ± 0.02 | 5 |" in text
    assert "| blue | – | 2.0 |" in text
    assert "**theirs** (printed in the paper)" in text
    assert "By hand." in text
    assert "| all | 1.5 |" in text
    assert "- *Red is best.* **does not hold**: Blue is." in text
    assert text.endswith("Made by `make study NAME=colours`.\n")


def test_a_bar_in_a_cell_is_no_column() -> None:
    header = next(line for line in markdown(OUTCOME, level=1).splitlines() if "share" in line)
    assert header.count("|") == 4


def test_json_has_everything_but_clock_readings(tmp_path: Path) -> None:
    write_outcome(OUTCOME, tmp_path / "out")
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    assert found["question"] == "Which colour?"
    assert found["figures"] == ["all-colours"]
    assert found["tables"][0]["rows"][0] == ["red", {"mean": 0.25, "deviation": 0.015}, 5]
    assert [table["printed"] for table in found["tables"]] == [False, True]
    assert found["findings"] == [{"claim": "Red is best.", "verdict": "does not hold", "reason": "Blue is."}]
    assert found["data"] == {"exact": 0.123456}
    assert "clock" not in json.dumps(found)
    assert (tmp_path / "out" / "all-colours.png").read_bytes() == b"png"


def test_a_study_is_written_again_in_its_place_and_nowhere_else(tmp_path: Path) -> None:
    write_outcome(OUTCOME, tmp_path / "out")
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    write_outcome(OUTCOME, tmp_path / "out")
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError):
        write_outcome(OUTCOME, tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").is_file()


@given(st.floats(-1e6, 1e6), st.none() | st.floats(0, 1e3), st.integers(0, 6))
@settings(deadline=None, max_examples=50)
def test_a_cell_shows_its_digits(mean: float, deviation: float | None, digits: int) -> None:
    shown = cell_text(Spread(mean, deviation, 3), digits).split(" ± ")
    assert float(shown[0]) == pytest.approx(mean, abs=0.51 * 10**-digits)
    assert len(shown) == (1 if deviation is None else 2)
    assert shown[0] == cell_text(mean, digits)

"""Work of deletions and of retraining, counted."""

import json
from pathlib import Path

import pytest

from studies import printed, runtime
from studies.layout import Layout
from studies.runtime import Work
from tests.studies.cells import ROWS, TINY
from tests.studies.deletions import about, bytes_of


def test_work_is_counted_from_the_records(revoked: Layout) -> None:
    work = runtime.study(revoked).data["work"]
    assert work["retraining, joint"]["passes"] == TINY["training.epochs"] * ROWS["train"]
    assert work["retraining, lattice"]["passes"] is None
    assert work["uncut"]["passes"] == 64 + 64
    assert work["certified-1"]["passes"] == 3 * ROWS["train"]
    assert work["exact"]["passes"] == 0
    generator = 16 * (12 + 8 + 8) + 16 + 6 * 16 + 6 + 8
    rest = 16 * 26 + 16 + 8 * 16 + 8 + 8 + 1
    assert work["uncut"]["products"] == 64 * generator + 64 * (rest + generator)
    assert (work["surgery"]["passes"], work["surgery"]["products"]) == (64, 64 * generator)


def test_clock_readings_are_shown_and_not_kept(revoked: Layout, tmp_path: Path) -> None:
    outcome = runtime.study(revoked)
    assert [row[1] for row in outcome.readings[0].rows if row[0] == "exact"] == ["drop"]
    one, two = (bytes_of(runtime.study(revoked), tmp_path / name) for name in ("one", "two"))
    assert one == two
    step = json.loads((revoked.deleted("uncut") / "seed-0" / "step.json").read_text())
    assert str(step["duration_seconds"]) not in one["study.json"].decode()
    assert "Seconds of each phase" in (tmp_path / "one" / "report.md").read_text()


def test_cells_from_a_cache_have_no_clock(revoked: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = runtime.study(revoked)
    monkeypatch.setattr(runtime, "STEP_FILE", "which-a-cache-does-not-keep.json")
    cached = runtime.study(revoked)
    assert cached.readings[0].rows == []
    assert all(row[1:] == [None, None] for row in cached.readings[1].rows)
    assert cached.data == ran.data


def test_the_ratio_is_judged_by_the_count() -> None:
    deletion = {"printed-1": Work("printed-1", 5000, None, 100, 1000)}
    for epochs, verdict in ((25, "does not hold"), (2500, "holds")):
        training = Work("retraining, joint", 100, epochs, 100 * epochs, 100 * epochs)
        found = about(runtime.findings(deletion, {"joint": training}, {"printed-1": "printed"}), "of training without")
        assert found.verdict == verdict
        assert f"a ratio of {epochs / 10:.1f}" in found.reason
        assert "2700 epochs" in found.reason


def test_without_gradients_there_is_nothing_to_compare() -> None:
    training = Work("retraining, joint", 100, None, None, None)
    found = runtime.findings({"u": Work("u", 1, None, 1, 1)}, {"joint": training}, {"u": "uncut"})
    assert about(found, "of training without").verdict == "not comparable"
    assert len(runtime.findings({"exact": Work("exact", 0, None, 0, 0)}, {}, {"exact": "exact"})) == 1


def test_the_printed_times_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert about(runtime.findings({}, {}, {}), "three phases").verdict == "holds"
    monkeypatch.setattr(printed, "RUNTIME", printed.RUNTIME._replace(total=30))
    assert about(runtime.findings({}, {}, {}), "three phases").verdict == "does not hold"

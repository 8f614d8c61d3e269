"""Privacy and utility over ε."""

from dataclasses import replace
from pathlib import Path

import pytest

from mbd.evaluation.results import Spread
from studies import printed, trade_off
from studies.deleted import Beside, DeletedLine, read_beside, read_deleted
from studies.layout import Layout
from studies.scores import read_scores
from tests.studies.deletions import about, attacked, bytes_of, passing


@pytest.fixture(scope="module")
def lines(revoked: Layout) -> tuple[list[DeletedLine], Beside]:
    scores = read_scores(revoked.evaluation("deleted"))
    deleted = read_deleted(revoked, revoked.plan.deletions, scores)
    return deleted, read_beside(revoked, deleted, scores)


def test_deletions_with_an_epsilon_are_drawn(revoked: Layout, tmp_path: Path) -> None:
    outcome = trade_off.study(revoked)
    assert [row[:2] for row in outcome.tables[0].rows] == [["Algorithm 1 as printed", "1"], ["certified", "1"]]
    one, two = (bytes_of(trade_off.study(revoked), tmp_path / name) for name in ("one", "two"))
    assert one == two
    assert one["trade-off.png"].startswith(b"\x89PNG")


def test_other_data_has_its_own_metric(revoked_talks: Layout) -> None:
    assert "WA (%)" in trade_off.study(revoked_talks).tables[0].header


def curve(own: DeletedLine, points: dict[float, tuple[float, float]]) -> list[DeletedLine]:
    """A deletion with these ε: white-box success and accuracy."""
    return [
        replace(attacked(passing(own), [80.0], [leak]), epsilon=epsilon, accuracy=Spread(acc, None, 1))
        for epsilon, (leak, acc) in points.items()
    ]


def flat(beside: Beside, before: tuple[float, float], reference: tuple[float, float]) -> Beside:
    joint = dict(beside["joint"])
    for role, (leak, acc) in (("before", before), ("reference", reference)):
        line = joint[role]  # type: ignore[index]
        joint[role] = replace(line, leaks=[Spread(leak, None, 1), *line.leaks[1:]], accuracy=Spread(acc, None, 1))  # type: ignore[index]
    return {"joint": joint}


def test_a_trade_off_is_found_where_there_is_one_and_only_there(lines: tuple[list[DeletedLine], Beside]) -> None:
    deleted, beside = lines
    own = next(d for d in deleted if d.kind == "printed")
    beside = flat(beside, (80.0, 90.0), (50.0, 89.0))
    good = trade_off.findings(curve(own, {0.5: (50.0, 89.0), 4.0: (60.0, 90.0)}), beside, "Acc2")
    assert about(good, "Smaller budgets").verdict == "holds"
    bad = trade_off.findings(curve(own, {0.5: (80.0, 60.0), 4.0: (80.0, 61.0)}), beside, "Acc2")
    assert about(bad, "Smaller budgets").verdict == "does not hold"
    assert "30.0 points" in about(bad, "Smaller budgets").reason


def test_the_certified_method_is_judged_beside_the_reference(lines: tuple[list[DeletedLine], Beside]) -> None:
    deleted, beside = lines
    own = next(d for d in deleted if d.kind == "certified")
    beside = flat(beside, (80.0, 90.0), (50.0, 89.0))
    good = trade_off.findings(curve(own, {0.5: (50.0, 88.5)}), beside, "Acc2")
    assert about(good, "carry an ε").verdict == "holds"
    assert "bits" in about(good, "carry an ε").reason
    for leak, acc in ((50.0, 80.0), (70.0, 89.0)):
        found = trade_off.findings(curve(own, {0.5: (leak, acc)}), beside, "Acc2")
        assert about(found, "carry an ε").verdict == "does not hold"


def test_the_printed_points_trade_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert about(trade_off.findings([], {}, "Acc2"), "own figure").verdict == "does not hold"
    rows = dict(printed.DELETION)
    rows[4.0] = rows[4.0]._replace(white_box=Spread(60.0, 0.1, 3))
    monkeypatch.setattr(printed, "DELETION", rows)
    assert about(trade_off.findings([], {}, "Acc2"), "own figure").verdict == "holds"

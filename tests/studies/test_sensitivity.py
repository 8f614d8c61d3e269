"""The sensitivity scan."""

from dataclasses import replace
from pathlib import Path

import pytest

from mbd.evaluation.results import Spread
from mbd.formats.guarantee import Guarantee
from studies import sensitivity, sensitivity_claims, thresholds
from studies.deleted import DeletedLine, read_deleted
from studies.layout import Layout
from studies.scores import read_scores
from studies.sensitivity_claims import findings, knob
from studies.thresholds import Part, Thresholds
from tests.studies.deletions import about, bytes_of


@pytest.fixture(scope="module")
def default(revoked: Layout) -> DeletedLine:
    return read_deleted(revoked, ["uncut"], read_scores(revoked.evaluation("deleted")))[0]


@pytest.fixture(scope="module")
def scanned(revoked: Layout) -> list[DeletedLine]:
    return read_deleted(revoked, ["budget-0_01", "uncut-b32"], read_scores(revoked.evaluation("scans")))


@pytest.fixture(scope="module")
def counted(revoked: Layout) -> Thresholds:
    return thresholds.read(revoked.thresholds() / "seed-0")


def test_each_scan_tells_what_it_changed(default: DeletedLine, scanned: list[DeletedLine]) -> None:
    assert [knob(scan, default) for scan in scanned] == [("r", 0.01), ("|B|", 32)]


def test_the_study_sets_scans_beside_the_default(revoked: Layout, tmp_path: Path) -> None:
    outcome = sensitivity.study(revoked)
    table = outcome.tables[0]
    assert [row[:2] for row in table.rows] == [["default", None], ["r", "0.01"], ["|B|", "32"]]
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert int(str(rows["r"]["edited"])) < int(str(rows["default"]["edited"]))
    assert all(row["ε proven"] is None for row in rows.values())
    one, two = (bytes_of(sensitivity.study(revoked), tmp_path / name) for name in ("one", "two"))
    assert one == two


def test_a_smaller_budget_chooses_a_part_of_the_same(
    revoked: Layout, default: DeletedLine, scanned: list[DeletedLine]
) -> None:
    edited = [next(iter(d.deletions.values())).indices.count for d in (scanned[0], default)]
    assert sensitivity.overlaps(revoked, "budget-0_01").mean == pytest.approx(edited[0] / edited[1])
    assert sensitivity.overlaps(revoked, "uncut").mean == 1


OVERLAP = {"budget-0_01": Spread(0.5, None, 1), "uncut-b32": Spread(0.95, None, 1)}


def accurate(deletion: DeletedLine, value: float) -> DeletedLine:
    return replace(deletion, accuracy=Spread(value, None, 1))


def test_accuracy_over_the_scan(default: DeletedLine, scanned: list[DeletedLine], counted: Thresholds) -> None:
    for low, verdict in ((88.5, "holds"), (80.0, "does not hold")):
        every = [accurate(scan, low) for scan in scanned]
        found = about(findings(accurate(default, 89.0), every, OVERLAP, [counted], "Acc2"), "1.1 points")
        assert found.verdict == verdict
        assert f"{89 - low:.2f} points" in found.reason


def test_no_epsilon_is_proven_unless_a_record_says_so(
    default: DeletedLine, scanned: list[DeletedLine], counted: Thresholds
) -> None:
    assert about(findings(default, scanned, OVERLAP, [counted], "Acc2"), "ε ≤ 1").verdict == "does not hold"
    proof = Guarantee(kind="certified", epsilon=0.5, delta=1e-5, assumptions=("some",))

    def proven(d: DeletedLine) -> DeletedLine:
        return replace(d, deletions={s: r.model_copy(update={"guarantee": proof}) for s, r in d.deletions.items()})

    found = findings(proven(default), [proven(scan) for scan in scanned], OVERLAP, [counted], "Acc2")
    assert about(found, "ε ≤ 1").verdict == "holds"


def test_stability_of_the_choice(
    default: DeletedLine, scanned: list[DeletedLine], counted: Thresholds, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert about(findings(default, scanned, OVERLAP, [counted], "Acc2"), "stable").verdict == "not comparable"
    monkeypatch.setattr(sensitivity_claims, "STABLE_ROWS", 16)
    assert about(findings(default, scanned, OVERLAP, [counted], "Acc2"), "stable").verdict == "holds"
    less = OVERLAP | {"uncut-b32": Spread(0.4, None, 1)}
    found = about(findings(default, scanned, less, [counted], "Acc2"), "stable")
    assert found.verdict == "does not hold"
    assert "40.0 % with 32 rows" in found.reason


def test_thresholds_are_judged_by_what_they_let_pass(
    default: DeletedLine, scanned: list[DeletedLine], counted: Thresholds
) -> None:
    bad = findings(default, scanned, OVERLAP, [counted.model_copy(update={"above_importance": 0})], "Acc2")
    assert about(bad, "operating point").verdict == "does not hold"
    assert about(bad, "limits harm").verdict == "does not hold"
    assert about(bad, "wherever they are").verdict == "does not hold"
    steady = tuple(row.model_copy(update={"candidates": 100}) for row in counted.passing)
    shared = Part(name="fusion F", parameters=10, salient=5, share_of_saliency=0.1, own=False)
    other = counted.model_copy(update={"passing": steady, "above_importance": 7, "parts": (*counted.parts, shared)})
    good = findings(default, scanned, OVERLAP, [other], "Acc2")
    assert {about(good, words).verdict for words in ("operating point", "limits harm", "wherever they are")} == {
        "holds"
    }

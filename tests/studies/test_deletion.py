"""The diagnostics of deletions: every number is that of a cell, and every claim can be found true or false."""

from dataclasses import replace
from pathlib import Path

import pytest

from mbd.evaluation.results import Spread
from studies import deletion
from studies.deleted import Beside, DeletedLine, Line, read_beside, read_deleted
from studies.deletion_claims import findings
from studies.layout import Layout
from studies.scores import read_scores
from tests.studies.deletions import about, attacked, bytes_of, passing


@pytest.fixture(scope="module")
def lines(revoked: Layout) -> tuple[list[DeletedLine], Beside]:
    """The deletions, and the models they are compared with."""
    scores = read_scores(revoked.evaluation("deleted"))
    deleted = read_deleted(revoked, revoked.plan.deletions, scores)
    return deleted, read_beside(revoked, deleted, scores)


def test_every_deletion_stands_between_the_full_model_and_the_reference(revoked: Layout) -> None:
    table = deletion.study(revoked).tables[0]
    assert [row[0] for row in table.rows] == [
        "joint: full model",
        *("surgery", "uncut", "printed-1", "certified-1"),
        "joint: reference",
        "lattice: full model",
        "exact",
        "lattice: reference",
    ]
    by_name = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    audit = revoked.attacks("uncut")[0]
    utility = next(u for u in audit.utility if u.metric == "acc2" and u.regime == "text+visual")
    assert utility.before
    roles = {"uncut": utility.after, "joint: full model": utility.before, "joint: reference": utility.reference}
    for name, interval in roles.items():
        accuracy = by_name[name]["Acc2 (%)"]
        assert isinstance(accuracy, Spread)
        assert accuracy.mean == pytest.approx(interval.value, abs=1e-3)
    assert by_name["surgery"]["ΔL_re"] == by_name["exact"]["ΔL_re"] == "0.000"
    assert float(str(by_name["printed-1"]["ΔL_re"])) > 0.018
    assert by_name["printed-1"]["ε"] == by_name["certified-1"]["ε"] == "1"
    assert by_name["uncut"]["ε"] is None


def test_the_papers_numbers_are_marked_as_printed(revoked: Layout) -> None:
    ours, theirs, *rest = deletion.study(revoked).tables
    assert theirs.printed
    assert not any(table.printed for table in (ours, *rest))


def test_the_gate_is_told_by_attack(revoked: Layout) -> None:
    table = deletion.study(revoked).tables[3]
    rows = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
    assert rows["uncut"]["pathway"] == "1 of 1"
    assert rows["surgery"]["pathway"] == rows["exact"]["pathway"] == "0 of 1"


def test_made_twice_it_is_the_same(revoked: Layout, tmp_path: Path) -> None:
    one, two = (bytes_of(deletion.study(revoked), tmp_path / name) for name in ("one", "two"))
    assert one == two


def test_other_modalities_classes_and_one_seed(revoked_talks: Layout) -> None:
    outcome = deletion.study(revoked_talks)
    assert outcome.tables[0].header[4] == "WA (%)"
    assert "face" in outcome.question
    assert about(outcome.findings, "paired t-test").verdict == "not comparable"


def spreads(value: float) -> Spread:
    return Spread(value, None, 1)


def models(lines: tuple[list[DeletedLine], Beside], *, leak: float, acc: float) -> tuple[list[DeletedLine], Beside]:
    """Full model 80 % / 90, reference 50 % / 89, and the paper's deletion with this leak and accuracy."""
    deleted, beside = lines
    before: Line = beside["joint"]["before"]
    before = replace(before, leaks=[spreads(80.0), spreads(70.0), *before.leaks[2:]], accuracy=spreads(90.0))
    reference = beside["joint"]["reference"]
    reference = replace(reference, leaks=[spreads(50.0), spreads(50.0), *reference.leaks[2:]], accuracy=spreads(89.0))
    own = next(d for d in deleted if d.kind == "printed")
    own = replace(attacked(own, [80.0, 81.0, 79.5], [leak, leak, leak]), accuracy=spreads(acc))
    return [own, *(d for d in deleted if d.kind != "printed")], {"joint": {"before": before, "reference": reference}}


def losses(value: float) -> dict[str, Spread]:
    return {name: spreads(value) for name in ("joint: full model", "printed-1")}


def test_a_deletion_as_the_paper_has_it_is_found_to_hold(lines: tuple[list[DeletedLine], Beside]) -> None:
    deleted, beside = models(lines, leak=50.5, acc=89.0)
    deleted[0] = passing(deleted[0])
    near = {"before": {"inside": 1.0, "outside": 0.0}, "edited_without_counterpart": 0}
    close = {s: r.model_copy(update={"reference": near}) for s, r in deleted[0].deletions.items()}
    deleted[0] = replace(deleted[0], deletions=close)
    found = findings(deleted, beside, losses(0.01), "Acc2")
    assert {finding.verdict for finding in found} == {"holds"}
    assert "50.5" in about(found, "near chance").reason
    assert "1.0 points" in about(found, "1–1.5 points").reason


def test_one_that_leaks_or_ruins_the_model_is_found_not_to(lines: tuple[list[DeletedLine], Beside]) -> None:
    deleted, beside = models(lines, leak=80.0, acc=50.0)
    found = findings(deleted, beside, losses(9.0), "Acc2")
    for words in (
        "near chance",
        "paired t-test",
        "1–1.5 points",
        "reconstruction loss",
        "indistinguishable",
        "certificate",
    ):
        assert about(found, words).verdict == "does not hold"
    assert "40.0 points" in about(found, "1–1.5 points").reason
    assert "9.000" in about(found, "reconstruction loss").reason
    assert "pathway" in about(found, "certificate").reason


def test_an_attack_that_sees_nothing_before_says_nothing_after(lines: tuple[list[DeletedLine], Beside]) -> None:
    deleted, beside = models(lines, leak=50.0, acc=89.0)
    joint = {role: replace(line, leaks=[spreads(51.0)] * 6) for role, line in beside["joint"].items()}
    found = findings(deleted, {"joint": joint}, losses(0.0), "Acc2")
    assert about(found, "near chance").verdict == "not comparable"
    assert about(found, "the white-box attack succeeds").verdict == "does not hold"


def test_without_the_papers_deletion_nothing_is_said_of_it(lines: tuple[list[DeletedLine], Beside]) -> None:
    deleted, beside = lines
    found = findings([d for d in deleted if d.kind != "printed"], beside, losses(0.0), "Acc2")
    assert len(found) == 2
    assert findings([d for d in deleted if d.kind == "exact"], {}, {}, "Acc2") == []

"""The report of an audit: one content for Markdown, the terminal and the figures."""

import struct

import pytest

from mbd.formats.leakage import (
    AttackRecord,
    Decision,
    EarlierAudits,
    Interval,
    InvariantRecord,
    LeakageRecord,
    LowerBound,
    UtilityRecord,
)
from mbd.report.figures import draw_leakage, forest_plot
from mbd.report.page.audit import audit_page, audit_plots, audit_summary, leakage_metrics, plot_of
from mbd.report.page.content import Estimate
from mbd.report.page.markdown import to_markdown
from mbd.report.text import table, to_text
from tests.formats.audits import strong_audit


def near(value: float) -> Interval:
    return Interval(value=value, low=value - 0.02, high=value + 0.02)


def attack(name: str, after: float, decision: Decision = "passed", variant: str = "as released") -> AttackRecord:
    return AttackRecord.model_validate(
        {
            "modality": "audio",
            "id": f"{name}.accuracy",
            "variant": variant,
            "chance": 0.5,
            "before": near(0.9) if variant == "as released" else None,
            "after": near(after),
            "reference": near(0.5),
            "difference": near(after - 0.5),
            "tolerance": 0.03,
            "detectable": 0.1,
            "blind": False,
            "decision": decision,
            "reason": f"{after:.3f} against 0.500",
        }
    )


def audit(asr: float = 0.5, acc2: float = 80.0, decision: Decision = "passed") -> LeakageRecord:
    utility = UtilityRecord(
        metric="acc2",
        regime="text+visual",
        before=near(82),
        after=near(acc2),
        reference=near(81),
        to_before=near(acc2 - 82),
        to_reference=near(acc2 - 81),
        margin=3,
        detectable=4.0,
        decision="passed",
        reason="",
    )
    return LeakageRecord(
        modalities=("audio",),
        models={"before": "b" * 64, "after": "a" * 64, "reference": "r" * 64},
        data={"name": "small", "digest": "d" * 64},
        earlier=EarlierAudits(audits=2, refused=1),
        suite=strong_audit("a" * 64).suite,
        attacks=(
            attack("whitebox", asr, decision),
            attack("membership", 0.5),
            attack("whitebox", 0.51, variant="int8"),
        ),
        utility=(utility, utility.model_copy(update={"regime": "text", "decision": "informational"})),
        invariants=(InvariantRecord(name="cut", decision="passed", reason="no tensor"),),
        lower_bound=LowerBound(
            epsilon=0.1,
            confidence=0.95,
            delta=1e-5,
            measure="membership.auc_all",
            by="threshold",
            claimed=1,
            decision="passed",
            reason="ε ok",
        ),
        decision="refused" if decision == "refused" else "passed",
        reasons=("whitebox (accuracy): 0.9",) if decision == "refused" else (),
    )


def test_the_report_begins_with_the_decision_and_has_every_number() -> None:
    report = to_markdown(audit_page(audit()), ["leakage"])
    order = ("**Passed: attacks found no audio.**", "## Attacks", "![Attacks on audio](figures/leakage.png)")
    assert sorted(order, key=report.index) == list(order)
    for part in (
        "0.900 [0.880, 0.920]",
        "After INT8 rounding or pruning, 1 of 1 measures of audio passed",
        "whitebox: accuracy (INT8)",
        "80.0 [80.0, 80.0]",
        "ε ≥ 0.1",
        "no tensor",
        "earlier audits of such deletions from the same model are recorded: 2, of which refused: 1",
    ):
        assert part in report
    refused = to_markdown(audit_page(audit(asr=0.9, decision="refused")))
    assert "**Refused: audio may not be gone.**" in refused
    assert "- whitebox (accuracy): 0.9" in refused
    assert refused.index("Why it is refused") < refused.index("## Attacks")


def test_the_terminal_shows_one_line_for_each_attack_with_its_strongest_finding() -> None:
    decided, more = audit_summary(audit(asr=0.9, decision="refused"), 100).split("\n\n")
    title, header, whitebox, membership, utility = decided.splitlines()
    assert title == "Refused: audio may not be gone"
    assert header.split()[-4:] == ["after", "reference", "passed", "blind"]
    assert "0.900" in whitebox and "0 of 1" in whitebox and "membership" in membership
    assert utility.startswith("Acc2 on") and "passed, 80.0" in utility
    assert more.startswith("Power: ")


@pytest.mark.parametrize("width", [30, 50, 80, 100, 200])
def test_the_report_in_a_terminal_shows_attacks_utility_and_the_decision_within_its_width(width: int) -> None:
    text = to_text(audit_page(audit()), width)
    decided = text.partition("\nSetup\n")[0]  # below it are digests, which stay in one piece
    assert max(map(len, decided.splitlines())) <= width
    words = " ".join(text.split())
    for part in ("Passed: attacks found no audio", "1 of 1 measures", "cut: passed", "80.0"):
        assert part in words
    assert ("0.900 [0.880, 0.920]" in words) == (width in (30, 50, 200))  # below each other, or all side by side


@pytest.mark.parametrize("width", range(16, 120, 7))
def test_a_table_breaks_no_word_however_narrow_the_terminal(width: int) -> None:
    rows = [["whitebox: accuracy, audio not fed", "0.75", "informational"], ["cut", "1.00", "passed"]]
    text = table(["measure", "before", "decision"], rows, width)
    words = {word for row in rows for cell in row for word in cell.split()}
    assert words <= set(text.split())
    assert max(map(len, text.splitlines())) <= max(width, len("decision: informational"))


def test_the_numbers_of_every_format_are_those_of_the_record() -> None:
    record = audit()
    (released, changed) = audit_plots(record)
    for plot, measured in ((released, record.attacks[:2]), (changed, record.attacks[2:])):
        cells = [[c.value for c in row if isinstance(c, Estimate)] for row in plot.table.rows]
        parts = [(a.before, a.after, a.reference, a.difference) for a in measured]
        assert cells == [[part.value for part in found if part] for found in parts]


def test_metrics_are_few_flat_numbers() -> None:
    assert leakage_metrics(audit()) == {"leaks_before": 2, "leaks": 0, "acc2_deleted": 80, "acc2_reference": 81}


def forest() -> bytes:
    return forest_plot(plot_of(audit(asr=0.9, decision="refused").attacks, "leakage", "audio"))


def test_a_figure_is_the_same_twice() -> None:
    png = forest()
    assert png == forest()
    assert min(struct.unpack(">II", png[16:24])) > 300


def test_every_modality_has_its_figures() -> None:
    assert set(draw_leakage(audit())) == {"leakage", "durability"}
    both = audit().model_copy(update={"modalities": ("audio", "visual")})
    own = tuple(a.model_copy(update={"modality": m}) for a in both.attacks for m in both.modalities)
    assert set(draw_leakage(both.model_copy(update={"attacks": own}))) == {
        *("leakage_audio", "durability_audio"),
        *("leakage_visual", "durability_visual"),
    }

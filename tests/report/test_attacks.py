"""What people see of an audit: the report, the terminal, the figures."""

import struct
from collections.abc import Callable

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.formats.leakage import (
    AttackRecord,
    Decision,
    Interval,
    InvariantRecord,
    LeakageRecord,
    LowerBound,
    UtilityRecord,
)
from mbd.report.attacks import leakage_metrics, leakage_report, leakage_summary
from mbd.report.leakage_figures import draw_leakage, leakage_intervals, proxy_scatter, trade_off


def near(value: float) -> Interval:
    return Interval(value=value, low=value - 0.02, high=value + 0.02)


def attack(name: str, after: float, decision: Decision = "passed", variant: str = "as released") -> AttackRecord:
    return AttackRecord.model_validate(
        {
            "modality": "audio",
            "attack": name,
            "measure": "accuracy",
            "variant": variant,
            "chance": 0.5,
            "before": near(0.9) if variant == "as released" else None,
            "after": near(after),
            "reference": near(0.5),
            "difference": near(after - 0.5),
            "tolerance": 0.03,
            "decision": decision,
            "reason": f"{after:.3f} against 0.500",
        }
    )


def audit(
    epsilon: float | None = 1.0, asr: float = 0.5, acc2: float = 80.0, decision: Decision = "passed"
) -> LeakageRecord:
    utility = UtilityRecord(
        metric="acc2",
        regime="text+visual",
        before=near(82),
        after=near(acc2),
        reference=near(81),
        to_before=near(acc2 - 82),
        to_reference=near(acc2 - 81),
        margin=3,
        decision="passed",
        reason="",
    )
    quality = {"spearman": 0.9, "share_within_8_percent": 0.5, "largest_relative_error": None, "overdelete_0.1": 0.1}
    return LeakageRecord(
        modalities=("audio",),
        models={"before": "b" * 64, "after": "a" * 64, "reference": "r" * 64},
        data={"name": "small", "digest": "d" * 64},
        suite={
            "parameters": {"confidence": 0.95, "tolerance": 0.03},
            "judged_together": 3,
            "rows": {"audio": {"splits": ["test"], "attacked": 9, "fit": 5, "scored": 4, "attribute": "data"}},
            "deletion": {"epsilon": epsilon},
        },
        attacks=(
            attack("whitebox", asr, decision),
            attack("membership", 0.5),
            attack("whitebox", 0.51, variant="int8"),
        ),
        utility=(utility, utility.model_copy(update={"regime": "text", "decision": "informational"})),
        invariants=(InvariantRecord(name="cut", decision="passed", reason="no tensor"),),
        lower_bound=LowerBound(
            epsilon=0.1, confidence=0.95, delta=1e-5, attack="membership", claimed=1, decision="passed", reason="ε ok"
        ),
        proxy={
            "parameters": 4,
            "sampled_from": "all",
            "rows": 8,
            "chi_max": 0.99,
            "swiftprune": quality,
            "gauss_newton": quality,
        },
        decision="refused" if decision == "refused" else "passed",
        reasons=("whitebox (accuracy): 0.9",) if decision == "refused" else (),
    )


def test_the_report_tells_the_decision_first_and_every_number() -> None:
    report = leakage_report(audit(), ["leakage"])
    assert (
        report.index("**Passed.**")
        < report.index("![leakage](figures/leakage.png)")
        < report.index("## Attacks on audio")
    )
    for part in (
        "0.900 (0.880 … 0.920)",
        "after rounding and pruning",
        "80.0 (80.0 … 80.0)",
        "OverDelete(0.1)",
        "ε ok",
        "no tensor",
    ):
        assert part in report
    refused = leakage_report(audit(asr=0.9, decision="refused"))
    assert "**Refused.**" in refused
    assert "- whitebox (accuracy): 0.9" in refused
    assert "| **refused** |" in refused


def test_the_terminal_shows_attacks_utility_and_the_decision() -> None:
    text = leakage_summary(audit())
    for part in (
        "whitebox: accuracy",
        "utility: Acc2 on text+visual",
        "1 measures, 0 refused",
        "invariant cut: passed",
        "decision: passed",
    ):
        assert part in text
    assert "on text " not in text


def test_metrics_are_flat_numbers() -> None:
    assert leakage_metrics(audit()) == {
        **{"passed": 1, "refusals": 0, "epsilon_shown": 0.1},
        **{"audio_whitebox_before": 0.9, "audio_whitebox_after": 0.5, "audio_whitebox_reference": 0.5},
        **{"audio_membership_before": 0.9, "audio_membership_after": 0.5, "audio_membership_reference": 0.5},
        **{"acc2_before": 82, "acc2_after": 80, "acc2_reference": 81},
    }


def leakage() -> bytes:
    return leakage_intervals(audit(asr=0.9, decision="refused").attacks, "audio")


def tradeoff() -> bytes:
    points = [(0.5, 0.5, 76.0), (1.0, 0.52, 77.0), (1.0, 0.54, 78.0), (4.0, 0.6, 80.0)]
    return trade_off([audit(epsilon, asr, acc2) for epsilon, asr, acc2 in points])


def scatter() -> bytes:
    increments = np.array([-1e-3, 1e-5, 2e-4, 0.0])
    facts = audit().proxy
    assert facts
    return proxy_scatter(increments, dict.fromkeys(("swiftprune", "gauss_newton"), increments * 1.5), facts)


@pytest.mark.parametrize("draw", [leakage, tradeoff, scatter])
def test_a_figure_is_the_same_twice(draw: Callable[[], bytes]) -> None:
    png = draw()
    assert png == draw()
    assert min(struct.unpack(">II", png[16:24])) > 300


def test_every_modality_has_its_figures() -> None:
    assert set(draw_leakage(audit())) == {"leakage", "durability"}
    both = audit().model_copy(update={"modalities": ("audio", "visual")})
    own = tuple(a.model_copy(update={"modality": m}) for a in both.attacks for m in both.modalities)
    assert set(draw_leakage(both.model_copy(update={"attacks": own}))) == {
        *("leakage_audio", "durability_audio"),
        *("leakage_visual", "durability_visual"),
    }


def test_a_trade_off_needs_an_epsilon() -> None:
    with pytest.raises(DataError, match="nothing to draw"):
        trade_off([audit(epsilon=None)])

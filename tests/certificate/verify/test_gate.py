"""The gate's decision is made again from the numbers: a decision that they do not carry is noticed."""

from typing import Any

import pytest

from mbd.certificate.verify.gate import gate_check
from mbd.formats.deletion import read_deletion
from mbd.formats.leakage import Interval, LeakageRecord
from tests.certificate.build import ModelWorkspace, leakage_record


@pytest.fixture(scope="module")
def evidence(model_workspace: ModelWorkspace) -> LeakageRecord:
    deletion = read_deletion(model_workspace.deletion("certified"))
    assert deletion
    return leakage_record(deletion)


def changed(evidence: LeakageRecord, part: str, **change: Any) -> LeakageRecord:
    """Return the evidence with its first finding of a kind changed."""
    found = getattr(evidence, part)
    new: Any = (found[0].model_copy(update=change),) if isinstance(found, tuple) else found.model_copy(update=change)
    return evidence.model_copy(update={part: new})


def test_evidence_that_passes(evidence: LeakageRecord) -> None:
    check = gate_check(evidence, 1.0)
    assert check.outcome == "passed"
    assert check.reason == "1 measures of attacks and 3 other findings pass by their numbers"


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        (
            "attacks",
            {"after": Interval(value=0.7, low=0.65, high=0.75), "difference": Interval(value=0.2, low=0.1, high=0.3)},
            "its numbers say otherwise",
        ),
        ("attacks", {"difference": None}, "its numbers say otherwise"),
        ("attacks", {"tolerance": None}, "its numbers say otherwise"),
        ("attacks", {"decision": "refused"}, "its numbers say otherwise"),
        ("attacks", {"decision": "informational"}, "no attack decided anything"),
        ("attacks", {"after": Interval(value=0.5, low=0.6, high=0.4)}, "ends before it begins"),
        ("utility", {"to_reference": Interval(value=-9.0, low=-10.0, high=-8.0)}, "its numbers say otherwise"),
        ("utility", {"to_before": Interval(value=0.0, low=1.0, high=-1.0)}, "ends before it begins"),
        ("invariants", {"decision": "refused", "reason": "audio is left"}, "refused: audio is left"),
        ("lower_bound", {"epsilon": 2.0}, "its numbers say otherwise"),
        ("lower_bound", {"claimed": 5.0}, "held against ε = 5.0, and the certificate claims 1.0"),
    ],
)
def test_a_number_that_does_not_carry_the_decision(
    evidence: LeakageRecord, part: str, change: dict[str, Any], said: str
) -> None:
    check = gate_check(changed(evidence, part, **change), 1.0)
    assert check.outcome == "failed"
    assert said in check.reason


def test_a_closed_gate_is_closed(evidence: LeakageRecord) -> None:
    refused = evidence.model_copy(update={"decision": "refused", "reasons": ("it leaks",)})
    assert "it leaks" in gate_check(refused, 1.0).reason
    assert gate_check(evidence.model_copy(update={"decision": "refused"}), 1.0).outcome == "failed"
    assert gate_check(evidence.model_copy(update={"attacks": ()}), 1.0).outcome == "failed"

"""The gate's decision is computed again: one that does not follow from the numbers is noticed."""

from typing import Any

import pytest

from mbd.formats.deletion import read_deletion
from mbd.formats.leakage import Interval, LeakageRecord, summarise
from mbd.verifier.gate import check_gate
from mbd.verifier.verdict import Check
from tests.certificate.build import ModelWorkspace, leakage_record
from tests.formats.audits import near


@pytest.fixture(scope="module")
def evidence(model_workspace: ModelWorkspace) -> LeakageRecord:
    deletion = read_deletion(model_workspace.deletion("certified"))
    assert deletion
    return leakage_record(deletion)


def changed(evidence: LeakageRecord, part: str, **change: Any) -> LeakageRecord:
    """Return the evidence with its first finding of a kind changed."""
    found = getattr(evidence, part)
    new: Any = found.model_copy(update=change) if part == "lower_bound" else None
    new = new or (found[0].model_copy(update=change), *found[1:])
    return evidence.model_copy(update={part: new})


def decided(evidence: LeakageRecord) -> Check:
    return check_gate(summarise(evidence), 1.0, evidence)


def test_evidence_that_passes(evidence: LeakageRecord) -> None:
    check = decided(evidence)
    assert check.outcome == "passed"
    assert check.reason == "51 measures of attacks and 9 other findings pass by their numbers"


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        (
            "attacks",
            {"after": Interval(value=0.2, low=0.15, high=0.25), "difference": Interval(value=0.2, low=0.1, high=0.3)},
            "its numbers say otherwise",
        ),
        ("attacks", {"difference": None}, "was not compared with the reference"),
        ("attacks", {"tolerance": None}, "another tolerance"),
        ("attacks", {"decision": "refused"}, "its numbers say otherwise"),
        ("attacks", {"after": Interval(value=0.5, low=0.6, high=0.4)}, "does not hold its value"),
        ("attacks", {"difference": Interval(value=0.0, low=0.0, high=0.0)}, "without an interval"),
        ("attacks", {"difference": Interval(value=-0.2, low=-0.3, high=0.0)}, "not the one of its values"),
        ("attacks", {"chance": 0.1}, "another chance"),
        ("attacks", {"blind": True}, "against its numbers"),
        ("attacks", {"before": None}, "against its numbers"),
        ("attacks", {"detectable": 0.01}, "its interval allows no less than 0.03"),
        ("utility", {"detectable": 2.0}, "its interval allows no less than"),
        ("utility", {"after": near(75.0), "to_reference": near(-9.0), "to_before": near(-9.0)}, "otherwise"),
        ("utility", {"to_before": Interval(value=0.0, low=1.0, high=-1.0)}, "does not hold its value"),
        ("invariants", {"decision": "refused", "reason": "audio is left"}, "the evidence was refused: input"),
        ("lower_bound", {"epsilon": 2.0}, "its numbers say otherwise"),
        ("lower_bound", {"claimed": 5.0}, "held against ε = 5.0, and the certificate claims 1.0"),
    ],
)
def test_a_decision_that_does_not_follow_from_the_numbers_is_found(
    evidence: LeakageRecord, part: str, change: dict[str, Any], said: str
) -> None:
    check = decided(changed(evidence, part, **change))
    assert check.outcome == "failed"
    assert said in check.reason


def test_a_gate_that_refused_is_reported(evidence: LeakageRecord) -> None:
    refused = evidence.model_copy(update={"decision": "refused", "reasons": ("it leaks",)})
    assert "it leaks" in decided(refused).reason
    assert decided(evidence.model_copy(update={"decision": "refused"})).outcome == "failed"
    informational = tuple(a.model_copy(update={"decision": "informational"}) for a in evidence.attacks)
    for attacks in ((), informational):
        check = decided(evidence.model_copy(update={"attacks": attacks}))
        assert (check.outcome, check.reason) == ("failed", "no attack decided anything, so nothing was shown")

"""The gate's decision, made again from the evidence numbers.

Whether a finding passes follows from its own numbers (`passes` in :mod:`mbd.formats.leakage`). The whole
passes if every finding that decides passes, and if at least one attack decided.
"""

from collections.abc import Iterator

from mbd.certificate.verdict import Check, failed, passed
from mbd.formats.leakage import Interval, LeakageRecord

GATE = "gate decision"


def gate_check(leakage: LeakageRecord, epsilon: float | None) -> Check:
    """Decide again; `epsilon` is what the certificate claims, None if it claims none."""
    for name, intervals in _measured(leakage):
        if any(i is not None and not i.low <= i.high for i in intervals):
            return failed(GATE, f"{name} has an interval that ends before it begins")
    for name, decision, passes in _decided(leakage):
        if (decision == "passed") != passes:
            return failed(GATE, f"{name} is said to have {decision}, and its numbers say otherwise")
    bound = leakage.lower_bound
    if bound and bound.claimed != epsilon:
        return failed(GATE, f"the attacks were held against ε = {bound.claimed}, and the certificate claims {epsilon}")
    return _as_a_whole(leakage)


def _as_a_whole(leakage: LeakageRecord) -> Check:
    findings = [
        *((a.decision, a.reason) for a in leakage.attacks),
        *((u.decision, u.reason) for u in leakage.utility),
        *((i.decision, i.reason) for i in leakage.invariants),
        *((b.decision, b.reason) for b in [leakage.lower_bound] if b),
    ]
    refused = [reason for decision, reason in findings if decision == "refused"]
    if leakage.decision != "passed" or refused or leakage.reasons:
        return failed(
            GATE,
            f"the evidence was refused: {'; '.join([*refused, *leakage.reasons]) or 'no reason verification_input'}",
        )
    attacks = sum(attack.decision == "passed" for attack in leakage.attacks)
    if not attacks:
        return failed(GATE, "no attack decided anything, so nothing was shown")
    others = sum(decision == "passed" for decision, _ in findings) - attacks
    return passed(GATE, f"{attacks} measures of attacks and {others} other findings pass by their numbers")


def _measured(leakage: LeakageRecord) -> Iterator[tuple[str, tuple[Interval | None, ...]]]:
    for a in leakage.attacks:
        yield f"{a.attack} ({a.measure}, {a.variant})", (a.before, a.after, a.reference, a.difference)
    for u in leakage.utility:
        yield f"{u.metric} of {u.regime}", (u.before, u.after, u.reference, u.to_before, u.to_reference)


def _decided(leakage: LeakageRecord) -> Iterator[tuple[str, str, bool]]:
    """Yield what decides by numbers: name, decision, and whether the numbers let it pass."""
    for a in leakage.attacks:
        if a.decision != "informational":
            yield f"{a.attack} ({a.measure}, {a.variant})", a.decision, a.passes
    for u in leakage.utility:
        if u.decision != "informational":
            yield f"{u.metric} of {u.regime}", u.decision, u.passes
    if leakage.lower_bound and leakage.lower_bound.decision != "informational":
        yield "the lower bound of ε", leakage.lower_bound.decision, leakage.lower_bound.passes

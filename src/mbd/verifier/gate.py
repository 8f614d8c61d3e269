"""The gate's decision, made again from the evidence numbers, and whether the audit was strong enough to decide.

Whether a finding passes follows from its own numbers (`passes` in :mod:`mbd.formats.leakage`). The whole
passes if every finding that decides passes, and if at least one attack decided. How strong an audit must be is fixed in
:mod:`mbd.formats.strength`.
"""

import math
from collections.abc import Iterator

from mbd.formats.leakage import Interval, LeakageRecord
from mbd.formats.limits import LONGEST_INTERVAL
from mbd.formats.predicate import Predicate
from mbd.formats.strength import power_in_words, shortfalls
from mbd.verifier.verdict import Check, failed, passed

GATE = "gate decision"
STRENGTH = "audit strength"


def strength_check(predicate: Predicate, leakage: LeakageRecord) -> Check:
    """Check that the audit was strong enough for a certificate, and that the next one is not too far away."""
    if predicate.reaudit_by - predicate.issued > LONGEST_INTERVAL:
        days = LONGEST_INTERVAL.days
        return failed(STRENGTH, f"the next audit is due {predicate.reaudit_by:%Y-%m-%d}, more than {days} days later")
    if weak := shortfalls(leakage, predicate.guarantee.kind):
        more = f"; and {len(weak) - 1} more" if len(weak) > 1 else ""
        return failed(STRENGTH, f"the audit is too weak: {weak[0].key}: {weak[0].problem}{more}")
    scored = min(leakage.suite.rows[modality].scored for modality in leakage.modalities)
    count = leakage.earlier
    before = f"{count.audits} earlier audits, {count.refused} refused" if count else "earlier audits were not counted"
    return passed(
        STRENGTH,
        f"every attack and variant, on {scored} scored rows, with parameters within their bounds; "
        f"{power_in_words(leakage)}; {before}",
    )


def gate_check(leakage: LeakageRecord, epsilon: float | None) -> Check:
    """Decide again; `epsilon` is what the certificate claims, None if it claims none."""
    if inconsistent := next(_inconsistent(leakage), None):
        return failed(GATE, inconsistent)
    for name, decision, passes in _decided(leakage):
        if (decision == "passed") != passes:
            return failed(GATE, f"{name} is said to have {decision}, and its numbers say otherwise")
    if overstated := next(_too_sharp(leakage), None):
        return failed(GATE, overstated)
    bound = leakage.lower_bound
    if bound and bound.claimed != epsilon:
        return failed(GATE, f"the attacks were held against ε = {bound.claimed}, and the certificate claims {epsilon}")
    return _as_a_whole(leakage)


def _as_a_whole(leakage: LeakageRecord) -> Check:
    refused = [finding.reason for finding in leakage.refused]
    if leakage.decision != "passed" or refused or leakage.reasons:
        reasons = "; ".join([*refused, *leakage.reasons]) or "no reason recorded"
        return failed(GATE, f"the evidence was refused: {reasons}")
    attacks = sum(attack.decision == "passed" for attack in leakage.attacks)
    if not attacks:
        return failed(GATE, "no attack decided anything, so nothing was shown")
    others = sum(finding.decision == "passed" for finding in leakage.findings) - attacks
    blind = sum(attack.blind is True for attack in leakage.attacks)
    note = f"; {blind} of the measures are blind: they would not have found the model before either" if blind else ""
    return passed(GATE, f"{attacks} measures of attacks and {others} other findings pass by their numbers{note}")


def _inconsistent(leakage: LeakageRecord) -> Iterator[str]:
    """Yield what cannot be, whatever was measured."""
    for name, intervals in _measured(leakage):
        if any(i is not None and not i.low <= i.value <= i.high for i in intervals):
            yield f"{name} has an interval that does not hold its value"
    for name, gap, one, other in _differences(leakage):
        if not math.isclose(gap.value, one.value - other.value, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{name} has a difference that is not the one of its values"
        if gap.low == gap.high:
            yield f"{name} has a difference without an interval, which no number of rows allows"
    for a in leakage.attacks:
        if a.decision != "informational" and a.blind != a.finds_nothing_before:
            yield f"{a} is marked as blind or not against its numbers"


def _too_sharp(leakage: LeakageRecord) -> Iterator[str]:
    """Yield what states more power than its interval allows."""
    stated = [
        (str(a), a.detectable, a.tolerance + (0 if a.before else a.difference.value - a.difference.low))
        for a in leakage.attacks
        if a.difference and a.tolerance is not None
    ]
    stated += [
        (f"{u.metric} of {u.regime}", u.detectable, u.margin + u.to_reference.high - u.to_reference.value)
        for u in leakage.utility
    ]
    for name, detectable, least in stated:
        if detectable is not None and detectable < least - 1e-9:
            yield f"{name} states that it would have found {detectable:g}; its interval allows no less than {least:g}"


def _measured(leakage: LeakageRecord) -> Iterator[tuple[str, tuple[Interval | None, ...]]]:
    for a in leakage.attacks:
        yield str(a), (a.before, a.after, a.reference, a.difference)
    for u in leakage.utility:
        yield f"{u.metric} of {u.regime}", (u.before, u.after, u.reference, u.to_before, u.to_reference)


def _differences(leakage: LeakageRecord) -> Iterator[tuple[str, Interval, Interval, Interval]]:
    """Yield every difference with the two values that it is of."""
    for a in leakage.attacks:
        if a.difference and a.after and a.reference:
            yield str(a), a.difference, a.after, a.reference
    for u in leakage.utility:
        yield f"{u.metric} of {u.regime}", u.to_reference, u.after, u.reference
        if u.to_before and u.before:
            yield f"{u.metric} of {u.regime}", u.to_before, u.after, u.before


def _decided(leakage: LeakageRecord) -> Iterator[tuple[str, str, bool]]:
    """Yield what decides by numbers: name, decision, and whether the numbers let it pass."""
    for a in leakage.attacks:
        if a.decision != "informational":
            yield str(a), a.decision, a.passes
    for u in leakage.utility:
        if u.decision != "informational":
            yield f"{u.metric} of {u.regime}", u.decision, u.passes
    if leakage.lower_bound and leakage.lower_bound.decision != "informational":
        yield "the lower bound of ε", leakage.lower_bound.decision, leakage.lower_bound.passes

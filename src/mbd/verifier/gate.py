"""The gate's decision, made again from what a certificate says of its audit, and whether the audit was strong enough.

Whether a measure passes follows from what the gate compared (:mod:`mbd.formats.leakage`). The whole passes if
everything that decides passes, and if at least one attack decided. How strong an audit must be is fixed in
:mod:`mbd.formats.strength`. Where `leakage.json` is at hand, its numbers are looked at as well.
"""

import math
from collections.abc import Iterator
from itertools import chain

from mbd.formats.leakage import AuditSummary, Interval, LeakageRecord
from mbd.formats.predicate import LONGEST_INTERVAL, Predicate
from mbd.formats.strength import power_in_words, required_measures, shortfalls
from mbd.verifier.verdict import Check, failed, passed

GATE = "gate decision"
STRENGTH = "audit strength"


def check_strength(predicate: Predicate, audit: AuditSummary, leakage: LeakageRecord | None = None) -> Check:
    """Check that the audit was strong enough for a certificate, and that the next one is not too far away."""
    if predicate.reaudit_by - predicate.issued > LONGEST_INTERVAL:
        days = LONGEST_INTERVAL.days
        return failed(STRENGTH, f"the next audit is due {predicate.reaudit_by:%Y-%m-%d}, more than {days} days later")
    if weak := shortfalls(audit, predicate.guarantee.kind):
        more = f"; and {len(weak) - 1} more" if len(weak) > 1 else ""
        reason = f"the audit is too weak: {weak[0].key}: {weak[0].problem}{more}"
        return failed(STRENGTH, reason, "not verified")  # what is there is genuine: less was shown than is needed
    scored = min(audit.suite.rows[modality].scored for modality in audit.modalities)
    count = audit.earlier
    before = f"{count.audits} earlier audits, {count.refused} refused" if count else "earlier audits were not counted"
    power = f"{power_in_words(leakage)}; " if leakage else ""
    return passed(
        STRENGTH,
        f"every attack and variant, on {scored} scored rows, with parameters within their bounds; {power}{before}",
    )


def check_gate(audit: AuditSummary, epsilon: float | None, leakage: LeakageRecord | None = None) -> Check:
    """Decide again; `epsilon` is what the certificate claims, None if it claims none."""
    if leakage and (wrong := next(chain(_inconsistent(leakage, audit), _too_sharp(leakage)), None)):
        return failed(GATE, wrong)
    for name, decision, passes in _decided(audit):
        if (decision == "passed") != passes:
            return failed(GATE, f"{name} is said to have {decision}, and its numbers say otherwise")
    bound = audit.lower_bound
    if bound and bound.claimed != epsilon:
        return failed(GATE, f"the attacks were held against ε = {bound.claimed}, and the certificate claims {epsilon}")
    return _as_a_whole(audit)


def _as_a_whole(audit: AuditSummary) -> Check:
    refused = [name for name, decision, _ in _decided(audit) if decision == "refused"]
    refused += [name for name, decision in audit.invariants.items() if decision == "refused"]
    if audit.decision != "passed" or refused or audit.reasons:
        reasons = "; ".join(audit.reasons or refused) or "no reason recorded"
        return failed(GATE, f"the evidence was refused: {reasons}")
    if not audit.judged:
        return failed(GATE, "no attack decided anything, so nothing was shown")
    others = len(audit.utility) + len(audit.invariants)
    others += audit.lower_bound is not None and audit.lower_bound.decision == "passed"
    blind = sum(map(len, (audit.blind or {}).values()))
    note = f"; {blind} of the measures are blind: they would not have found the model before either" if blind else ""
    return passed(GATE, f"{audit.judged} measures of attacks and {others} other findings pass by their numbers{note}")


def _decided(audit: AuditSummary) -> Iterator[tuple[str, str, bool]]:
    """Yield what decides by numbers: name, decision, and whether the numbers let it pass."""
    tolerance = audit.tolerance
    for modality, measures in audit.measures.items():
        for measure, variants in measures.items():
            for variant, judged in variants.items():
                passes = tolerance is not None and judged.low <= tolerance and judged.high >= -tolerance
                yield f"{measure} ({modality}, {variant})", judged.decision, passes
    for u in audit.utility:
        yield f"{u.metric} of {u.regime}", u.decision, u.passes
    if (bound := audit.lower_bound) and bound.decision != "informational":
        passes = bound.claimed is None or bound.epsilon <= bound.claimed
        yield "the lower bound of ε", bound.decision, passes


def _inconsistent(leakage: LeakageRecord, audit: AuditSummary) -> Iterator[str]:
    """Yield what cannot be, whatever was measured."""
    for name, intervals in _measured(leakage):
        if any(i is not None and not i.low <= i.value <= i.high for i in intervals):
            yield f"{name} has an interval that does not hold its value"
    for name, gap, value, reference in _differences(leakage):
        if not math.isclose(gap.value, value.value - reference.value, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{name} has a difference that is not the one of its values"
        if gap.low == gap.high:
            yield f"{name} has a difference without an interval, which no number of rows allows"
    for a in leakage.attacks:
        if a.decision == "informational":
            continue
        if a.difference is None or a.after is None or a.reference is None:
            yield f"{a} is said to have {a.decision}, and was not compared with the reference"
        if a.blind != a.finds_nothing_before:
            yield f"{a} is marked as blind or not against its numbers"
        if a.tolerance != audit.tolerance or a.chance != required_measures(audit, a.modality).get(a.id, a.chance):
            yield f"{a} was judged with another tolerance or another chance than the format and the parameters say"


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

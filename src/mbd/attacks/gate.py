"""The gate: judges each measure of the deleted model, and decides whether the model passes.

An attack is refused if it succeeds significantly better on the deleted model than on the reference, beyond the
tolerance, and better than chance; or if it is significantly worse than both, since it then has information and predicts
the opposite. Utility is refused if significantly more than the margin is lost to the reference or to the full model on
the same modalities. Significant means that the whole interval of the paired difference lies beyond the threshold, at a
confidence of 1 − α/k for k measures judged together (Bonferroni), so that a model without a leak is refused in at most
a share α of all audits. Quantiles that far out are not resampled but taken from Student's distribution: the bootstrap
interval is scaled by t(1 − α/2k) / z(1 − α/2), with g − 1 degrees of freedom for g groups of rows. Where hardly a row
differs, the bound is exact (:mod:`mbd.attacks.bootstrap`).

A measure that passes shows no more than its interval: its reason states the upper bound of the difference. What the
audit would have found is stated beside it (`detectable`): the smallest leak, or loss of utility, that the gate refuses
with the probability `attacks.least_power` at these rows. A measure is blind if the leak of the model before is smaller.
An audit that falls short of :mod:`mbd.formats.strength` is refused whatever it found.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mbd.attacks.attack import AttackEvidence
from mbd.attacks.bootstrap import (
    auc,
    detectable,
    difference_interval,
    measure_interval,
    resampled,
    resampled_bounds,
    resampled_together,
)
from mbd.attacks.target_model import Role
from mbd.attacks.utility import UtilityMeasurement
from mbd.errors import GateRefusedError
from mbd.formats.guarantee import Kind
from mbd.formats.leakage import (
    AttackRecord,
    Decision,
    Finding,
    Interval,
    InvariantRecord,
    LeakageRecord,
    LowerBound,
    UtilityRecord,
    Variant,
    summarise,
)
from mbd.formats.strength import STRENGTH, shortfalls
from mbd.params.deletion import AttacksSettings
from mbd.privacy.audit import lower_bound
from mbd.randomness import stream


@dataclass(frozen=True)
class GateFinding:
    """One measure of one attack on each model, on the same rows; without the reference it is informational."""

    modality: str
    variant: Variant
    found: Mapping[Role, AttackEvidence]

    @property
    def decides(self) -> bool:
        """Whether the deleted model can be compared with the reference."""
        return "reference" in self.found


def judge_attacks(findings: Sequence[GateFinding], params: AttacksSettings) -> tuple[AttackRecord, ...]:
    """Compare the deleted model with the reference in each measure."""
    judged = sum(finding.decides for finding in findings)
    return tuple(_judge_attack(finding, judged, params) for finding in findings)


def judge_utility(utilities: Sequence[UtilityMeasurement], params: AttacksSettings) -> tuple[UtilityRecord, ...]:
    """Compare the utility of the deleted model with the reference and the full model."""
    judged = sum(len(measured_utility.found) - 1 for measured_utility in utilities if measured_utility.decides)
    return tuple(_judge_utility(measured_utility, judged, params) for measured_utility in utilities)


def judge_epsilon(
    findings: Sequence[GateFinding], claimed: float | None, delta: float, params: AttacksSettings
) -> LowerBound | None:
    """Return the largest lower bound on ε that membership shows, beside the claimed ε.

    The score of the same attack on the reference, which has no information about m*, is subtracted from each row's.
    """
    scored = [
        finding
        for finding in findings
        if finding.variant == "as released"
        and finding.found["after"].attack == "membership"
        and finding.found["after"].statistic is auc
    ]
    if not scored:
        return None
    confidence = 1 - (1 - params.confidence) / len(scored)
    bounds = []
    for finding in scored:
        after, reference = finding.found["after"], finding.found["reference"]
        score = after.rows[:, 1] - reference.rows[:, 1]
        bound = lower_bound(score, after.rows[:, 0] > 0, delta=delta, confidence=confidence, seed=params.seed)
        bounds.append((bound.epsilon, f"{after.attack}.{after.measure}", bound.by))
    epsilon, measure, by = max(bounds)
    record = LowerBound(
        epsilon=epsilon,
        confidence=params.confidence,
        delta=delta,
        measure=measure,
        by=by,
        claimed=claimed,
        decision="informational",
        reason=f"the attacks show ε ≥ {epsilon:.3g} at δ = {delta:g}; no ε is claimed",
    )
    if claimed is None:
        return record
    relation = "within" if record.passes else "above"
    reason = f"{measure}: the attacks show ε ≥ {epsilon:.3g} at δ = {delta:g}, {relation} the claimed {claimed:g}"
    return record.model_copy(update={"decision": _decision(record.passes), "reason": reason})


def decide(record: LeakageRecord, kind: Kind) -> LeakageRecord:
    """Return the record with the decision of the gate on a deletion of this kind, and the reasons of a refusal.

    Attacks come first, by the size of their effect, then ε, utility, invariants, and what makes the audit too weak.
    """
    reasons = [_named(part) for part in sorted(record.refused, key=_effect)]
    # Whether the model before is needed depends on what the audit is for: `mbd certify` asks.
    reasons += map(str, shortfalls(summarise(record), kind, later=True))
    return record.model_copy(update={"decision": "refused" if reasons else "passed", "reasons": tuple(reasons)})


def refuse(record: LeakageRecord, report: Path) -> None:
    """Raise if the model is refused; the message names the attacks, their effect, and the report."""
    if record.decision == "passed":
        return
    first: dict[str, str] = {}  # by what refuses: an attack, utility, invariants, the strength of the audit
    for reason in record.reasons:
        first.setdefault(reason.partition(" (")[0].partition(".")[0], reason)
    rest = len(record.reasons) - len(first)
    shown = [f"  - {reason}" for reason in first.values()] + ([f"  - and {rest} more of these kinds"] if rest else [])
    raise GateRefusedError(
        "\n".join([f"the gate refuses the model after the deletion of {', '.join(record.modalities)}:", *shown]),
        file=report,
        hint="attack again with parameters of `attacks` within their bounds (docs/attacks.md#strength)"
        if set(first) == {STRENGTH}
        else "the report lists every number; use another deletion method (docs/deletion.md), and attack again",
    )


class _Measured:
    """One measure of several models on the same rows; each is resampled once."""

    def __init__(self, found: Mapping[Role, AttackEvidence], params: AttacksSettings) -> None:
        if len({(e.attack, e.measure, len(e.rows)) for e in found.values()}) != 1:
            raise ValueError(f"different measures or rows: {[(e.measure, len(e.rows)) for e in found.values()]}")
        self._found, self._params = found, params
        self._values = dict(zip(found, resampled_together(list(found.values()), params), strict=True))

    def intervals(self) -> dict[Role, Interval]:
        """Return the measure of each model."""
        return {r: measure_interval(e, self._values[r], self._params) for r, e in self._found.items()}

    def difference(self, one: Role, other: Role, judged: int) -> Interval:
        """Return the difference of two models with its interval, corrected for `judged` measures judged together."""
        values = self._values[one] - self._values[other]
        return difference_interval(self._found[one], self._found[other], values, judged, self._params)

    def smallest_leak(self, judged: int) -> float | None:
        """Return the smallest difference from the reference that would have been refused; None: none that can be.

        A model that leaks varies as the model before does, not as a model after that hardly differs from the
        reference. Where the model before was not attacked, it varies as if it had nothing in common with the reference.
        """
        role: Role = "before" if "before" in self._found else "after"
        own, reference, params = self._found[role], self._found["reference"], self._params
        value, gap = own.value - reference.value, self.difference(role, "reference", judged)
        noise, width = self._values[role] - self._values["reference"] - value, value - gap.low
        if role == "after":
            values = self._values[role] - np.roll(self._values["reference"], 1)  # not paired: other resamples
            noise, width = values - value, max(width, value - resampled_bounds(value, values, own, judged, params)[0])
        beyond = detectable(noise, width, params.tolerance, params.least_power)
        level, needed = measure_interval(own, self._values[role], params), own.chance + params.tolerance
        noise, needed = self._values[role] - own.value, needed - reference.value
        above_chance = detectable(noise, level.value - level.low, needed, params.least_power)
        return _possible(max(beyond, above_chance), reference.limits[1] - reference.value)

    def smallest_loss(self, margin: float, judged: int) -> float | None:
        """Return the smallest loss against the reference that would have been refused; None: none that can be.

        It is planted: the model that loses is the reference with the answers of some rows exchanged among them, as few
        as are refused. One that hardly differs from the reference, as the one after may, would not vary as it does.
        Nor is it smaller than the interval of the model after allows.
        """
        reference, params = self._found["reference"], self._params
        found = self.difference("after", "reference", judged)
        order = stream(params.seed, "attacks", "power").permutation(len(reference.rows))

        def planted(exchanged: int) -> tuple[float, bool]:
            """Return the loss by so many rows, and whether it is refused with the probability."""
            rows, some = reference.rows.copy(), order[:exchanged]
            rows[some, 1] = rows[np.roll(some, 1), 1]
            worse = replace(reference, rows=rows)
            values = resampled(worse, params) - self._values["reference"]
            gap = difference_interval(worse, reference, values, judged, params)
            needed = detectable(gap.value - values, gap.high - gap.value, margin, params.least_power)
            return -gap.value, -gap.value >= needed

        counts = range(2, len(order) + 1)
        fewest = bisect_left(counts, True, key=lambda exchanged: planted(exchanged)[1])
        loss = planted(counts[fewest])[0] if fewest < len(counts) else math.inf
        return _possible(max(loss, margin + found.high - found.value), reference.value - reference.limits[0])


def _judge_attack(finding: GateFinding, judged: int, params: AttacksSettings) -> AttackRecord:
    after, measured = finding.found["after"], _Measured(finding.found, params)
    intervals = measured.intervals()
    record = AttackRecord(
        modality=finding.modality,
        id=f"{after.attack}.{after.measure}",
        variant=finding.variant,
        chance=after.chance,
        before=intervals.get("before"),
        after=intervals["after"],
        reference=intervals.get("reference"),
        difference=None,
        tolerance=None,
        detectable=None,
        blind=None,
        decision="informational",
        reason="informational: compared with the model before deletion; not part of the gate",
    )
    if not finding.decides:
        return record
    gap = measured.difference("after", "reference", judged)
    measures = {"difference": gap, "tolerance": params.tolerance, "detectable": measured.smallest_leak(judged)}
    record = record.model_copy(update=measures)
    record = record.model_copy(update={"blind": record.finds_nothing_before})
    return record.model_copy(update={"decision": _decision(record.passes), "reason": _attack_reason(record)})


def _attack_reason(record: AttackRecord) -> str:
    after, reference, gap = record.after, record.reference, record.difference
    assert after and reference and gap and record.tolerance is not None  # noqa: S101 -- just measured
    values = f"{after.value:.3f}, reference {reference.value:.3f}"
    low, high = record.beyond
    if low > record.tolerance:
        return (
            f"{values}: difference {gap.value:+.3f}, lower bound {gap.low:+.3f}, above the tolerance of "
            f"{record.tolerance:g}"
        )
    if high < -record.tolerance:
        return (
            f"{values}, chance {record.chance:g}: difference {gap.value:+.3f}, upper bound {gap.high:+.3f}; an attack "
            "that is significantly worse than chance has information"
        )
    note = "; blind: it would not have found the model before deletion either, so this shows little"
    note = note if record.blind else ""
    return f"{values}: difference {gap.value:+.3f}, upper bound {gap.high:+.3f}{note}"


def _judge_utility(measured_utility: UtilityMeasurement, judged: int, params: AttacksSettings) -> UtilityRecord:
    measured = _Measured(measured_utility.found, params)
    intervals = measured.intervals()
    before = intervals.get("before")
    record = UtilityRecord(
        metric=measured_utility.metric,
        regime=measured_utility.regime,
        before=before,
        after=intervals["after"],
        reference=intervals["reference"],
        to_before=measured.difference("after", "before", judged) if before else None,
        to_reference=measured.difference("after", "reference", judged),
        margin=measured_utility.margin,
        detectable=measured.smallest_loss(measured_utility.margin, judged),
        decision="informational",
        reason="",
    )
    lost = [
        f"{record.after.value:.4g}, {name} {value:.4g}: difference {gap.value:+.3g}, upper bound {gap.high:+.3g}, a "
        f"loss above the margin of {measured_utility.margin:g}"
        for name, value, gap in (
            ("reference", record.reference.value, record.to_reference),
            ("full model", before.value if before else 0.0, record.to_before),
        )
        if gap is not None and gap.high < -measured_utility.margin
    ]
    full = f", full model on the same modalities {before.value:.4g}" if before else ""
    fine = f"{record.after.value:.4g}, reference {record.reference.value:.4g}{full}"
    decision = _decision(record.passes) if measured_utility.decides else "informational"
    return record.model_copy(update={"decision": decision, "reason": "; ".join(lost) or fine})


def _possible(effect: float, largest: float) -> float | None:
    return effect if effect <= largest and math.isfinite(effect) else None


def _decision(passes: bool) -> Decision:
    return "passed" if passes else "refused"


def _effect(part: Finding) -> tuple[int, float]:
    """Return by what refusals are sorted."""
    if isinstance(part, AttackRecord):
        return 0, -(part.difference.low if part.difference else 0.0)
    return 1 + [LowerBound, UtilityRecord, InvariantRecord].index(type(part)), 0.0


def _named(part: Finding) -> str:
    if isinstance(part, AttackRecord):
        return f"{part}: {part.reason}"
    if isinstance(part, UtilityRecord):
        return f"utility ({part.metric} on {part.regime}): {part.reason}"
    if isinstance(part, InvariantRecord):
        return f"invariant ({part.name}): {part.reason}"
    return f"ε ({part.measure}): {part.reason}"

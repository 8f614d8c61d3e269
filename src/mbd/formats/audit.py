"""What a certificate says of an audit: for each measure its id, its decision and what the gate compared.

All numbers are in `leakage.json`, which is published beside the certificate; the certificate has its digest. Whether an
audit passed and was strong enough follows from the summary alone.
"""

from typing import NamedTuple

from pydantic import Field

from mbd.formats.leakage import (
    AttackRecord,
    Decision,
    EarlierAudits,
    LeakageFormat,
    LeakageRecord,
    MeasureId,
    ReferenceModel,
    SuiteRecord,
    Variant,
)
from mbd.records import Record

RELEASED: Variant = "as released"


class MeasureSummary(NamedTuple):
    """One measure that was judged: what the gate compared with the tolerance (:attr:`AttackRecord.beyond`)."""

    decision: Decision
    low: float
    high: float


class UtilitySummary(Record):
    """One metric of the retained modalities that was judged: how much is lost at least is compared with the margin."""

    metric: str
    regime: str
    decision: Decision
    margin: float
    to_reference: float
    """upper bound of after − reference"""
    to_before: float | None
    """upper bound of after − before"""

    @property
    def passes(self) -> bool:
        """Whether no more than the margin is surely lost to either."""
        return all(high is None or high >= -self.margin for high in (self.to_reference, self.to_before))


class BoundSummary(Record):
    """ε that the attacks have shown at least, beside the ε that is claimed."""

    epsilon: float
    confidence: float
    delta: float
    claimed: float | None
    decision: Decision


class AuditSummary(Record):
    """An audit, as far as the gate has decided by it."""

    format: LeakageFormat
    """of `leakage.json`: which measures an audit must have belongs to it"""
    modalities: tuple[str, ...]
    models: dict[str, str]
    """SHA-256 of the weights: before, after, reference"""
    reference: ReferenceModel | None
    data: dict[str, str]
    suite: SuiteRecord
    earlier: EarlierAudits | None
    measures: dict[str, dict[MeasureId, dict[Variant, MeasureSummary]]]
    """by modality, id, and what was done to the models before they were attacked: decision, low, high"""
    blind: dict[str, tuple[MeasureId, ...]] | None
    """for each modality the measures that would not have found it in the model before; null: that was not attacked"""
    utility: tuple[UtilitySummary, ...]
    invariants: dict[str, Decision]
    lower_bound: BoundSummary | None
    decision: Decision
    reasons: tuple[str, ...] = Field(default=())

    @property
    def judged(self) -> int:
        """How many measures of attacks were judged."""
        return sum(len(variants) for measures in self.measures.values() for variants in measures.values())

    @property
    def tolerance(self) -> float | None:
        """How far an attack may surely get beyond the reference and chance, or fall below both."""
        value = self.suite.parameters.get("tolerance")
        return value if isinstance(value, int | float) else None


def summarise(record: LeakageRecord) -> AuditSummary:
    """Return what a certificate says of `leakage.json`."""
    judged = [a for a in record.attacks if a.decision != "informational" and a.difference and a.after]
    measures: dict[str, dict[str, dict[Variant, MeasureSummary]]] = {modality: {} for modality in record.modalities}
    for attack in judged:
        low, high = attack.beyond
        summary = MeasureSummary(decision=attack.decision, low=low, high=high)
        measures.setdefault(attack.modality, {}).setdefault(attack.id, {})[attack.variant] = summary
    bound = record.lower_bound
    return AuditSummary(
        format=record.format,
        modalities=record.modalities,
        models=record.models,
        reference=record.reference,
        data=record.data,
        suite=record.suite,
        earlier=record.earlier,
        measures=measures,
        blind=_blind(record, [attack for attack in judged if attack.variant == RELEASED]),
        utility=tuple(
            UtilitySummary(
                metric=u.metric,
                regime=u.regime,
                decision=u.decision,
                margin=u.margin,
                to_reference=u.to_reference.high,
                to_before=u.to_before.high if u.to_before else None,
            )
            for u in record.utility
            if u.decision != "informational"
        ),
        invariants={i.name: i.decision for i in record.invariants if i.decision != "informational"},
        lower_bound=bound and BoundSummary(**bound.model_dump(exclude={"measure", "by", "reason"})),
        decision=record.decision,
        reasons=record.reasons,
    )


def _blind(record: LeakageRecord, released: list[AttackRecord]) -> dict[str, tuple[MeasureId, ...]] | None:
    if "before" not in record.models or any(attack.before is None for attack in released):
        return None
    return {m: tuple(a.id for a in released if a.modality == m and a.blind) for m in record.modalities}

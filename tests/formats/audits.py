"""Records of audits that are strong enough for a certificate, without running any attack."""

from typing import Any

from mbd.formats.guarantee import Kind
from mbd.formats.leakage import (
    AttackedRows,
    AttackRecord,
    EarlierAudits,
    Interval,
    InvariantRecord,
    LeakageRecord,
    LowerBound,
    SuiteRecord,
    UtilityRecord,
)
from mbd.formats.strength import AS_RELEASED, MEASURES, VARIANTS
from mbd.params.deletion import AttacksSettings

SCORED = 100
FORMAT = LeakageRecord.model_fields["format"].default


def near(value: float, width: float = 0.02) -> Interval:
    """Return a measured value with an interval around it."""
    return Interval(value=value, low=value - width, high=value + width)


def attacks_on(modality: str) -> tuple[AttackRecord, ...]:
    """Return every measure that the format demands, each at the level of the reference."""
    return tuple(
        AttackRecord(
            modality=modality,
            id=measure.format(k=SCORED, few=8),
            variant=variant,
            chance=chance,
            before=near(0.86, 0.03) if variant == "as released" else None,
            after=near(chance),
            reference=near(chance),
            difference=near(0.0),
            tolerance=0.03,
            detectable=0.08,
            blind=False if variant == "as released" else None,
            decision="passed",
            reason="no better than on the reference",
        )
        for variant in VARIANTS
        for measure, chance in MEASURES[FORMAT].items()
        if variant == "as released" or measure.partition(".")[0] not in AS_RELEASED
    )


def utility_of(metric: str, value: float, margin: float) -> UtilityRecord:
    """Return a metric of which next to nothing was lost."""
    return UtilityRecord(
        metric=metric,
        regime="text+visual",
        before=near(value),
        after=near(value),
        reference=near(value),
        to_before=near(0.0),
        to_reference=near(0.0),
        margin=margin,
        detectable=margin + 0.05,
        decision="passed",
        reason="no more is lost than may be",
    )


def strong_audit(
    weights: str,
    *,
    before: str | None = "b" * 64,
    reference: str = "e" * 64,
    modalities: tuple[str, ...] = ("audio",),
    kind: Kind = "empirical",
    epsilon: float | None = None,
    **changes: Any,
) -> LeakageRecord:
    """Return the audit of a model that passes everything; `changes` go on top."""
    attacks = tuple(attack for modality in modalities for attack in attacks_on(modality))
    names = ("input", "cut", "shape", "content", "record", *([] if kind == "empirical" else [kind]))
    rows = AttackedRows(
        splits=("test",),
        attacked=2 * SCORED,
        fit=SCORED,
        scored=SCORED,
        groups_scored=SCORED,
        ids_digest="0" * 64,
        attribute="data",
    )
    record = LeakageRecord(
        modalities=modalities,
        models={**({"before": before} if before else {}), "after": weights, "reference": reference},
        data={"name": "synthetic"},
        suite=SuiteRecord(
            parameters=AttacksSettings().model_dump(mode="json"),
            judged_together=len(attacks),
            rows=dict.fromkeys(modalities, rows),
            deletion=None,
        ),
        earlier=EarlierAudits(audits=0, refused=0),
        attacks=attacks,
        utility=(utility_of("acc2", 84.0, 3.0), utility_of("corr", 0.7, 0.1)),
        invariants=tuple(InvariantRecord(name=name, decision="passed", reason="looked up") for name in names),
        lower_bound=LowerBound(
            epsilon=0.0,
            confidence=0.95,
            delta=1e-5,
            measure="membership.auc_all",
            by="threshold",
            claimed=epsilon,
            decision="informational" if epsilon is None else "passed",
            reason="no more was shown than is claimed",
        ),
        proxy=None,
        decision="passed",
        reasons=(),
    )
    return record.model_copy(update=changes)

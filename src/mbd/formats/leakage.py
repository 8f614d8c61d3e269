"""`leakage.json`: every attack on the deleted model beside the reference, and whether the gate opens.

Each number has its interval. Comparisons are between the deleted model ("after") and the reference, the model that
never saw the modality; the model "before" shows that the attack can see a leak at all. What passes follows from the
numbers in the record alone (`passes`), so every reader can decide again.

A certificate says of an audit (:class:`AuditSummary`) for each measure its id, its decision and what the gate compared;
`leakage.json` is published beside it, and the certificate has its digest. Whether an audit passed and was strong enough
follows from the summary alone.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from mbd.records import Digest, Record

LEAKAGE = "leakage.json"
LeakageFormat = Literal["urn:missing-by-design:leakage:v1"]
Decision = Literal["passed", "refused", "informational"]
"""informational: compared with the model before deletion; not part of the gate"""
Variant = Literal["as released", "int8", "pruned"]
MeasureId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*\.[a-z0-9_]+$", max_length=100)]
"""ATTACK.MEASURE, as `membership.auc_loss`; reports have its words (:mod:`mbd.report.page.words`)"""


class Interval(Record):
    """A measured value with its confidence interval."""

    value: float
    low: float
    high: float


class AttackRecord(Record):
    """One measure of one attack."""

    modality: str
    """what the attack is after"""
    id: MeasureId
    variant: Variant = "as released"
    """what was done to the models before they were attacked"""
    chance: float
    """what guessing without any knowledge reaches"""
    before: Interval | None
    after: Interval | None
    reference: Interval | None
    difference: Interval | None
    """after − reference, on the same rows; its confidence counts that many measures are judged"""
    tolerance: float | None
    """how much the difference may surely exceed 0, or fall below it"""
    detectable: float | None
    """smallest difference that the gate would have refused with the probability `attacks.least_power` at these rows;
    null: none that the measure can have, or the measure was not judged"""
    blind: bool | None
    """whether the gate would not have refused the model before by this measure, so that to pass shows little; null: not
    known"""
    decision: Decision
    reason: str

    @property
    def attack(self) -> str:
        """The attack that measured it."""
        return self.id.partition(".")[0]

    def __str__(self) -> str:
        """Return it for a message: `whitebox.accuracy_fed (audio, int8)`."""
        return f"{self.id} ({self.modality}{'' if self.variant == 'as released' else f', {self.variant}'})"

    @property
    def beyond(self) -> tuple[float, float]:
        """What the gate compares with the tolerance: how far the attack gets beyond the reference and beyond chance.

        The first is what it surely gets beyond both, the second what it may get beyond one of them: below the tolerance
        it is knowledge turned upside down. Where chance is 0 (R², shares that move) less than nothing is a bad fit, and
        no knowledge. With 4 decimals, so that every reader compares the same numbers.
        """
        if self.difference is None or self.after is None:
            raise ValueError(f"{self} was not compared with the reference")
        low = min(self.difference.low, self.after.low - self.chance)
        high = max(self.difference.high, self.after.high - self.chance, *([0.0] if self.chance <= 0 else []))
        return round(low, 4), round(high, 4)

    @property
    def finds_nothing_before(self) -> bool | None:
        """Whether the model before differs from the reference by less than is detectable; None: not measured."""
        if self.before is None or self.reference is None:
            return None
        return self.detectable is None or self.before.value - self.reference.value < self.detectable

    @property
    def passes(self) -> bool:
        """Whether the numbers let the measure pass."""
        if self.difference is None or self.tolerance is None or self.after is None:
            return False
        low, high = self.beyond
        return low <= self.tolerance and high >= -self.tolerance


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


class UtilityRecord(Record):
    """How well the retained modalities still serve; never measured on inputs that hold a deleted modality."""

    metric: str
    regime: str
    """which modalities were given"""
    before: Interval | None
    after: Interval
    reference: Interval
    to_before: Interval | None
    """after − before, on the same rows; its confidence counts that many measures are judged"""
    to_reference: Interval
    """after − reference, likewise"""
    margin: float
    """how much of the metric may surely be lost"""
    detectable: float | None
    """smallest loss against the reference that the gate would have refused with the probability `attacks.least_power`
    at these rows; null: none that the metric can have"""
    decision: Decision
    reason: str

    @property
    def summary(self) -> UtilitySummary:
        """What a certificate says of it."""
        return UtilitySummary(
            metric=self.metric,
            regime=self.regime,
            decision=self.decision,
            margin=self.margin,
            to_reference=self.to_reference.high,
            to_before=self.to_before.high if self.to_before else None,
        )

    @property
    def passes(self) -> bool:
        """Whether the numbers let the measure pass."""
        return self.summary.passes


class InvariantRecord(Record):
    """Something that a deletion promises of its result, looked up in the files."""

    name: str
    decision: Decision
    reason: str


class LowerBound(Record):
    """ε that the attacks have shown at least, at a confidence, beside the ε that is claimed."""

    epsilon: float
    confidence: float
    delta: float
    measure: MeasureId
    """by which it was shown"""
    by: str
    """the kind of bound"""
    claimed: float | None
    decision: Decision
    reason: str

    @property
    def passes(self) -> bool:
        """Whether no more was shown than is claimed."""
        return self.claimed is None or self.epsilon <= self.claimed


Finding = AttackRecord | UtilityRecord | InvariantRecord | LowerBound


class AttackedRows(Record):
    """The rows that the attacks on one modality were made on."""

    splits: tuple[str, ...]
    attacked: int
    fit: int
    """rows that the attacks were fitted on"""
    scored: int
    """rows that they were scored on; `attacked` = `fit` + `scored`"""
    groups_scored: int
    ids_digest: str
    attribute: str
    """where the private attribute comes from"""


class SuiteRecord(Record):
    """What is needed to run the same attacks again."""

    parameters: dict[str, Any]
    """the section `attacks` of the parameters, without paths"""
    added: dict[str, dict[str, str]] = Field(default_factory=dict)
    """attacks that are not built in: where each comes from, and what it asks"""
    judged_together: int
    """number of measures by which the confidence of each difference was corrected"""
    rows: dict[str, AttackedRows]
    """by modality"""
    deletion: dict[str, Any] | None
    """method and guarantee of the deletion that was attacked, where there was a `deletion.json`"""


class EarlierAudits(Record):
    """Audits of deletions of the same modalities from the same weights, as far as recorded beside the ledgers.

    With enough seeds, rows or parameters an audit can pass by chance. The count is the issuer's own: who removes it, or
    attacks where other ledgers are, begins again at 0.
    """

    audits: int
    refused: int
    """how many of them the gate refused"""


class ReferenceModel(Record):
    """The reference, as far as a verifier compares the released model with it."""

    record: Digest
    """SHA-256 of its `model.json`"""
    modalities: tuple[str, ...]
    """what it takes; it never saw others"""
    shapes: Digest
    """SHA-256 of the canonical JSON of names, shapes and types of its tensors (:meth:`ModelRecord.shapes_digest`)"""


class LeakageRecord(Record):
    """Everything `leakage.json` says."""

    format: LeakageFormat = "urn:missing-by-design:leakage:v1"
    modalities: tuple[str, ...]
    """what was deleted and attacked"""
    models: dict[str, str]
    """SHA-256 of the weights: before, after, reference"""
    reference: ReferenceModel | None = None
    """what the reference is; null in records of earlier versions"""
    data: dict[str, str]
    """name and digest of the FeatureSet"""
    suite: SuiteRecord
    earlier: EarlierAudits | None
    """null: they were not counted"""
    attacks: tuple[AttackRecord, ...]
    utility: tuple[UtilityRecord, ...]
    invariants: tuple[InvariantRecord, ...]
    lower_bound: LowerBound | None
    proxy: dict[str, Any] | None = None
    """no longer measured; earlier versions compared importance with true leave-one-out increments (surgery)"""
    decision: Literal["passed", "refused"]
    reasons: tuple[str, ...]
    """why it was refused; empty if it passed"""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that was judged or measured."""
        return (*self.attacks, *self.utility, *self.invariants, *([self.lower_bound] if self.lower_bound else []))

    @property
    def refused(self) -> tuple[Finding, ...]:
        """What was found against the model."""
        return tuple(finding for finding in self.findings if finding.decision == "refused")


RELEASED: Variant = "as released"


class MeasureSummary(NamedTuple):
    """One measure that was judged: what the gate compared with the tolerance (:attr:`AttackRecord.beyond`)."""

    decision: Decision
    low: float
    high: float


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
        utility=tuple(measured.summary for measured in record.utility if measured.decision != "informational"),
        invariants={i.name: i.decision for i in record.invariants if i.decision != "informational"},
        lower_bound=bound and BoundSummary(**bound.model_dump(exclude={"measure", "by", "reason"})),
        decision=record.decision,
        reasons=record.reasons,
    )


def _blind(record: LeakageRecord, released: list[AttackRecord]) -> dict[str, tuple[MeasureId, ...]] | None:
    if "before" not in record.models or any(attack.before is None for attack in released):
        return None
    return {m: tuple(a.id for a in released if a.modality == m and a.blind) for m in record.modalities}

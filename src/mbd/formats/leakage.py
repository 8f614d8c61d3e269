"""`leakage.json`: every attack on the deleted model beside the reference, and whether the gate opens.

Each number has its interval. Comparisons are between the deleted model ("after") and the reference, the model that
never saw the modality; the model "before" shows that the attack can see a leak at all. What passes follows from the
numbers in the record alone (`passes`), so every reader can decide again.
"""

from typing import Any, Literal

from mbd.records import Record

LEAKAGE = "leakage.json"
Decision = Literal["passed", "refused", "informational"]
"""informational: compared with the model before deletion; not part of the gate"""
Variant = Literal["as released", "int8", "pruned"]


class Interval(Record):
    """A measured value with its confidence interval."""

    value: float
    low: float
    high: float


class AttackRecord(Record):
    """One measure of one attack."""

    modality: str
    """what the attack is after"""
    attack: str
    measure: str
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
    decision: Decision
    reason: str

    @property
    def exceeds(self) -> bool:
        """Whether the attack surely succeeds better than on the reference and than chance, beyond the tolerance."""
        if self.difference is None or self.tolerance is None or self.after is None:
            return False
        return self.difference.low > self.tolerance and self.after.low > self.chance + self.tolerance

    @property
    def oddly_below(self) -> bool:
        """Whether the attack is surely worse than on the reference and than chance: knowledge turned upside down.

        Where chance is 0 (R², shares that move) less than nothing is a bad fit, and no knowledge.
        """
        if self.difference is None or self.tolerance is None or self.after is None or self.chance <= 0:
            return False
        return self.difference.high < -self.tolerance and self.after.high < self.chance - self.tolerance

    @property
    def passes(self) -> bool:
        """Whether the numbers let the measure pass."""
        measured = self.difference is not None and self.tolerance is not None
        return measured and not self.exceeds and not self.oddly_below


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
    decision: Decision
    reason: str

    @property
    def passes(self) -> bool:
        """Whether the numbers let the measure pass: no more than the margin is surely lost to either."""
        return all(d is None or d.high >= -self.margin for d in (self.to_reference, self.to_before))


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
    attack: str
    """attack, measure and kind of bound by which it was shown"""
    claimed: float | None
    decision: Decision
    reason: str

    @property
    def passes(self) -> bool:
        """Whether no more was shown than is claimed."""
        return self.claimed is None or self.epsilon <= self.claimed


class LeakageRecord(Record):
    """Everything `leakage.json` says."""

    format: Literal["urn:missing-by-design:leakage:v1"] = "urn:missing-by-design:leakage:v1"
    modalities: tuple[str, ...]
    """what was deleted and attacked"""
    models: dict[str, str]
    """SHA-256 of the weights: before, after, reference"""
    data: dict[str, str]
    """name and digest of the FeatureSet"""
    suite: dict[str, Any]
    """what is needed to run the same attacks again: parameters, attribute, rows, splits, seeds"""
    attacks: tuple[AttackRecord, ...]
    utility: tuple[UtilityRecord, ...]
    invariants: tuple[InvariantRecord, ...]
    lower_bound: LowerBound | None
    proxy: dict[str, Any] | None
    """how well importance predicts true leave-one-out increments (surgery)"""
    decision: Literal["passed", "refused"]
    reasons: tuple[str, ...]
    """why it was refused; empty if it passed"""

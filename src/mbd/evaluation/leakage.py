"""What `leakage.json` says: every attack on the deleted model beside the reference, and whether the gate opens.

Each number has its interval. Comparisons are between the deleted model ("after") and the reference, the model that
never saw the modality; the model "before" shows that the attack can see a leak at all.
"""

from typing import Any, Literal

from mbd.records import Record

LEAKAGE = "leakage.json"
Decision = Literal["passed", "refused", "told"]
"""`told`: shown, and decides nothing"""


class Interval(Record):
    """A measured value with its confidence interval."""

    value: float
    low: float
    high: float


class AttackRecord(Record):
    """One measure of one attack."""

    attack: str
    measure: str
    variant: Literal["as released", "int8", "pruned"] = "as released"
    """what was done to the models before they were attacked"""
    chance: float
    before: Interval | None
    after: Interval | None
    reference: Interval | None
    difference: Interval | None
    """after − reference, on the same rows"""
    tolerance: float | None
    """how much the difference may surely exceed 0, or fall below it"""
    decision: Decision
    reason: str


class UtilityRecord(Record):
    """How well the retained modalities still serve."""

    metric: str
    regime: str
    """which modalities were given"""
    before: Interval
    after: Interval
    reference: Interval
    margin: float
    decision: Decision
    reason: str


class InvariantRecord(Record):
    """Something that the deletion method promises of its result, looked up in the files."""

    name: str
    decision: Decision
    reason: str


class LowerBound(Record):
    """ε that the attacks have shown at least, at a confidence, beside the ε that is claimed."""

    epsilon: float
    confidence: float
    delta: float
    attack: str
    claimed: float | None
    decision: Decision
    reason: str


class LeakageRecord(Record):
    """Everything `leakage.json` says."""

    format: Literal["urn:missing-by-design:leakage:v1"] = "urn:missing-by-design:leakage:v1"
    modality: str
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

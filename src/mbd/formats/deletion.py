"""What `deletion.json` says: how a model came out of another one by a deletion, and what is guaranteed of it.

The file stands beside `model.safetensors` and `model.json` of the new model. It holds no time and no duration: the same
deletion without noise gives the same bytes (how long the phases took is in `step.json`).
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import model_validator

from mbd.formats.model import ComponentName
from mbd.records import Record

DELETION = "deletion.json"
INDICES = "indices.safetensors"


class RequestRecord(Record):
    """What was to be forgotten: whole modalities, or modalities of these subjects only."""

    modalities: tuple[str, ...]
    subjects: tuple[str, ...] = ()


class GuaranteeRecord(Record):
    """What is guaranteed, and under which assumptions; ε and δ only where they are proven."""

    kind: Literal["empirical", "certified", "exact"]
    epsilon: float | None
    delta: float | None
    assumptions: tuple[str, ...]

    @model_validator(mode="after")
    def _no_epsilon_without_proof(self) -> "GuaranteeRecord":
        if self.kind == "empirical" and (self.epsilon is not None or self.delta is not None):
            raise ValueError("an empirical deletion has no (ε, δ)")
        if self.kind != "empirical" and (self.epsilon is None or self.delta is None or not self.assumptions):
            raise ValueError(f"a deletion of kind {self.kind} needs (ε, δ) and the assumptions under which they hold")
        return self


class IndexRecord(Record):
    """The positions that were edited: digest of the file that lists them, and how many there are in each tensor."""

    sha256: str
    count: int
    by_tensor: dict[str, int]


class BudgetRecord(Record):
    """What the lineage had spent before and after this deletion, and the entry of its ledger that says so."""

    rho: float
    rho_before: float
    rho_after: float
    epsilon_before: float
    epsilon_after: float
    delta: float
    limit: float
    entry: str
    """digest of the charge in the ledger"""


class DeletionRecord(Record):
    """Everything `deletion.json` says."""

    format: Literal["urn:missing-by-design:deletion:v1"] = "urn:missing-by-design:deletion:v1"
    method: ComponentName
    request: RequestRecord
    parameters: dict[str, Any]
    """the section `deletion` of the parameters"""
    guarantee: GuaranteeRecord
    lineage: tuple[str, ...]
    """SHA-256 of the weights from the first model of the lineage to the one before this deletion"""
    before: str
    """SHA-256 of the weights that were deleted from"""
    after: str
    """SHA-256 of the weights of the new model"""
    revoked: tuple[str, ...]
    """all modalities that the lineage has revoked so far"""
    data: dict[str, str]
    """name of the FeatureSet, and the digest of the digests of its files in use"""
    indices: IndexRecord
    budget: BudgetRecord | None
    ledger_entries: tuple[str, ...] = ()
    """entries of the lineage's ledger that this record and those before it vouch for"""
    reference: dict[str, Any] | None
    """distances to a model trained without the modalities, where one was given"""
    facts: dict[str, Any]
    """the method's own findings"""


def read_deletion(folder: Path) -> DeletionRecord | None:
    """Return the deletion record of a model folder, or None if it has none."""
    file = folder / DELETION
    if not file.is_file():
        return None
    return DeletionRecord.read(file, "deletion record", "fetch the model again, or delete again")

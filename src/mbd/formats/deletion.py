"""`deletion.json`: how a model was made from another one by a deletion, and what is guaranteed of it.

The file is stored with `model.safetensors` and `model.json` of the new model. It holds no time and no duration: the
same deletion without noise gives the same bytes (how long the phases took is in `step.json`).
"""

from pathlib import Path
from typing import Any, Literal

from mbd.formats.guarantee import Guarantee, LineageBudget
from mbd.formats.model import ComponentName
from mbd.formats.predicate import Rounding
from mbd.records import Digest, Record

DELETION = "deletion.json"


class DeletionTarget(Record):
    """What is deleted: whole modalities, or the modalities of named subjects (groups) only."""

    modalities: tuple[str, ...]
    subjects: tuple[str, ...] = ()


class IndexRecord(Record):
    """The positions that were edited: digest of the file that lists them, and how many there are in each tensor."""

    sha256: Digest
    count: int
    by_tensor: dict[str, int]


class DeletionRecord(Record):
    """Everything `deletion.json` says."""

    format: Literal["urn:missing-by-design:deletion:v1"] = "urn:missing-by-design:deletion:v1"
    method: ComponentName
    request: DeletionTarget
    parameters: dict[str, Any]
    """the section `deletion` of the parameters"""
    guarantee: Guarantee
    lineage: tuple[Digest, ...]
    """SHA-256 of the weights from the first model of the lineage to the one before this deletion"""
    before: Digest
    """SHA-256 of the weights that were deleted from"""
    after: Digest
    """SHA-256 of the weights of the new model"""
    revoked: tuple[str, ...]
    """all modalities that the lineage has revoked so far"""
    data: dict[str, str]
    """name of the FeatureSet, and the digest of the digests of its files in use"""
    indices: IndexRecord
    budget: LineageBudget | None
    ledger_entries: tuple[str, ...] = ()
    """ledger entries known to this record and those before it; if one is missing from the ledger, lines were lost"""
    rounding: Rounding | None
    """null: nothing was rounded"""
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

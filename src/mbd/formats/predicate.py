"""What a Modality Deletion Certificate states, field by field (docs/certificate-format.md explains each of them).

The predicate holds what the paper lists (modality, edited positions or their digest, commitment to the noise and its σ,
(ε, δ) and how they were computed, digest, specification of the tests) and what a verifier needs to judge it: the kind
of guarantee with its assumptions in words, evidence, lineage, environment, deadlines. It holds nothing secret: no key,
no salt, no id of a person, and digests of old weights only where nothing is promised of them.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mbd.formats.guarantee import Delta, Guarantee, Kind, LineageBudget, NonNegative, Positive, claimable
from mbd.formats.leakage import AuditSummary
from mbd.formats.model import ComponentName
from mbd.records import Digest, Line, Name, Record, Time

LONGEST_INTERVAL = timedelta(days=366)
"""until the next audit of a released model"""
CHECKPOINT_AGE = timedelta(days=7)
"""how old the newest checkpoint of a log may be to show that nothing was revoked, unless a verifier says otherwise"""


STABLE_ROWS = 2000
"""calibration rows from which on the paper calls its proxies stable"""


METHOD_KINDS: Mapping[str, Kind] = {"surgery": "empirical", "certified": "certified", "exact": "exact"}
"""the kind of guarantee that each built-in method declares"""
Count = Annotated[int, Field(ge=0, lt=2**53)]
Reference = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$")]
"""an identifier that is no sentence and no address"""
ErasureClaim = Literal["none", "partial", "complete"]
COPIES: Mapping[ErasureClaim, str] = {
    "none": "nothing is claimed (no purge was published)",
    "partial": "searched for and removed, but some remain, or may remain",
    "complete": "searched for and removed; none remains in the places searched",
}
"""what each claim says of copies of the old weights"""


def deleted_words(modalities: Sequence[str], persons: int) -> str:
    """Return what was deleted, as a sentence names it; `persons`: of how many, 0: of all."""
    names = ", ".join(modalities)
    return f"{names} of {persons} person{'s' * (persons > 1)}" if persons else names


MOST_BITS = 15
"""of the mantissa of a released number, where a method rounds; a float32 has 23"""


class Rounding(Record):
    """How released numbers were rounded: all bits of a mantissa beyond the first `mantissa_bits` are 0."""

    mantissa_bits: Annotated[int, Field(ge=1, le=MOST_BITS)]
    chosen_by: str
    """what decided how many; never test rows"""
    rows: int
    """rows that the losses were measured on"""
    loss: float
    """mean prediction loss before rounding, without the deleted modalities"""
    loss_rounded: float


class DigestOrCommitment(Record):
    """A digest, or a salted commitment to one that is not disclosed."""

    sha256: Digest | None = None
    commitment: Digest | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "DigestOrCommitment":
        if (self.sha256 is None) == (self.commitment is None):
            raise ValueError("either the digest or a commitment to it")
        return self


class DeletedContent(Record):
    """What was forgotten: modalities, or the recordings of some subjects in them."""

    modalities: Annotated[tuple[Name, ...], Field(min_length=1)]
    scope: Literal["modalities", "subjects"]
    subjects: tuple[Digest, ...]
    """commitments to the ids of the subjects, in ascending order"""
    revoked: tuple[Name, ...]
    """all modalities that the lineage has revoked so far"""

    @model_validator(mode="after")
    def _subjects_as_the_scope_says(self) -> "DeletedContent":
        if (self.scope == "subjects") != bool(self.subjects):
            raise ValueError("subjects are listed if, and only if, the scope is subjects")
        if self.scope == "modalities" and not set(self.modalities) <= set(self.revoked):
            raise ValueError("modalities that were deleted are among those that were revoked")
        return self

    @property
    def words(self) -> str:
        """What was deleted, as a sentence names it."""
        return deleted_words(self.modalities, len(self.subjects))


class DeletionMethod(Record):
    """How it was forgotten."""

    name: ComponentName
    kind: Kind
    """kind of guarantee that the method declares; a deletion by it claims this kind, or a weaker one"""
    variant: str | None
    parameters: dict[str, Any]
    """those of the parameters that this method uses"""
    findings: dict[str, Any]
    """what the method has to say of its own work: thresholds, counts, what was removed"""


class Edit(Record):
    """The positions that were edited, listed in `indices.safetensors`."""

    kind: Literal["zero", "noise", "all", "none"]
    """zero: they are zero | noise: noise was added | all: every number is new | none: there are none"""
    sha256: Digest
    count: Count


class Noise(Record):
    """The noise: how much of it, and a commitment to the key it came from; never the key."""

    sigma: Positive
    commitment: Digest
    stream: str
    key: Literal["destroyed", "in escrow"]


class Budget(Record):
    """The arithmetic of (ε, δ), so that it can be done again: ε ≥ ε(δ, Δ/σ), Δ = 2C, ρ = Δ²/2σ²."""

    mechanism: Literal["gaussian"] = "gaussian"
    clip_radius: Positive
    """C"""
    sensitivity: Positive
    """Δ"""
    reason: str
    """why Δ holds"""
    sigma: Positive
    """σ"""
    epsilon: NonNegative
    delta: Delta
    rho: Positive
    """ρ"""
    computed: dict[str, Any]
    """the same by other ways, for comparison: the paper's σ and ε, by Rényi divergence"""
    lineage: LineageBudget


class CalibrationRows(Record):
    """How many calibration rows there were to choose positions from."""

    requested: Count
    used: Count
    note: str | None
    """said where there were fewer than 2,000"""


class Absence(Record):
    """Modalities of which, by `model.json`, nothing is in the released weights."""

    belongs_to: tuple[str, ...]
    """no tensor exists for them alone"""
    reads: tuple[str, ...]
    """no column of any tensor reads them, and the model takes no input of them"""
    sees: tuple[str, ...]
    """no tensor's training has seen them"""


class Structure(Record):
    """What can be looked up in the released weights."""

    backbone: ComponentName
    inputs: dict[Name, Count]
    """modalities that the model takes, with their dimensions"""
    absent: Absence


class EvaluationEvidence(Record):
    """Utility of the released model on the modalities it still takes, by `mbd evaluate`."""

    metrics_sha256: Digest
    modalities: tuple[str, ...]
    rows: Count
    metrics: dict[str, float]


class Evidence(Record):
    """What was tried on the released model."""

    audit: AuditSummary | None
    """what `leakage.json` says, as far as the gate decided by it; null only where subjects were forgotten exactly: that
    is a claim of equal bits, which training again can show, and no attack"""
    evaluation: EvaluationEvidence


class Lineage(Record):
    """What the model was made from, as far as it may be disclosed, and where."""

    before: DigestOrCommitment
    """weights that were deleted from"""
    models: tuple[DigestOrCommitment, ...]
    """weights from the first model of the lineage to the one before"""
    id: Digest
    """commitment to the first model: the same in all certificates of the lineage"""
    record: Digest
    """commitment to `deletion.json`"""
    key: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    """which of the issuer's lineage keys `id` and `record` were made with"""
    data_name: str
    data: DigestOrCommitment
    """digest of the digests of all data files in use"""
    dvc_revision: str | None
    git_commit: str | None
    image_digest: str | None
    run_id: str | None


class RequestReference(Record):
    """The request that was carried out; nothing personal."""

    reference: Reference | None = None
    received: Time | None = None
    due: Time | None = None


class Erasure(Record):
    """What is claimed about copies of the old weights and of the deleted data."""

    claim: ErasureClaim
    note: str

    @property
    def words(self) -> str:
        """The claim in words."""
        return COPIES[self.claim]


class Environment(Record):
    """Versions of what ran one or several steps."""

    steps: tuple[str, ...]
    versions: dict[str, str]


class Issuer(Record):
    """Who answers for the certificate, in their own words; the keys in the trust file say who has signed."""

    name: Line | None
    contact: Line | None
    """an e-mail address or a URL"""


class Predicate(Record):
    """Everything a certificate states of the released model."""

    model: Name
    """name under which the model is published"""
    issuer: Issuer
    deleted: DeletedContent
    guarantee: Guarantee
    method: DeletionMethod
    edit: Edit
    rounding: Rounding | None
    """how the released numbers were rounded; null: they were not"""
    noise: Noise | None
    budget: Budget | None
    calibration: CalibrationRows | None
    structure: Structure
    evidence: Evidence
    lineage: Lineage
    environment: tuple[Environment, ...]
    request: RequestReference
    erasure: Erasure
    disclosures: tuple[str, ...]
    """what this certificate itself discloses that the guarantee does not cover, in words"""
    issued: Time
    reaudit_by: Time
    supersedes: Digest | None
    """SHA-256 of the envelope of an earlier certificate that this one replaces"""

    @model_validator(mode="after")
    def _whole(self) -> "Predicate":
        kind = METHOD_KINDS.get(self.method.name, self.method.kind)  # a plug-in's method declares its own
        claims = {*claimable(kind), *(() if self.method.name in METHOD_KINDS else ("empirical",))} - {"none"}
        if self.method.kind != kind or self.guarantee.kind not in claims:
            raise ValueError(f"a deletion by {self.method.name} is of kind {' or '.join(sorted(claims))}")
        if (self.budget is None) != (self.guarantee.kind != "certified"):
            raise ValueError("a budget belongs to a certified deletion, and to no other")
        if (self.noise is None) != (self.budget is None and self.edit.kind != "noise"):
            raise ValueError("noise is described if, and only if, some was added")
        if self.method.name == "surgery" and self.rounding is None:
            raise ValueError("what a surgery releases is rounded")
        if self.evidence.audit is None and (self.guarantee.kind, self.deleted.scope) != ("exact", "subjects"):
            raise ValueError("a modality counts as forgotten only if attacks were made on the model")
        if self.reaudit_by <= self.issued:
            raise ValueError("the date of the next audit comes after that of issue")
        return self

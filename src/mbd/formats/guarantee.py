"""What is guaranteed of a deletion, and the privacy budget that it is charged to.

The same records are in `model.json`, `deletion.json`, certificates and the ledger of a lineage.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mbd.files import canonical_digest
from mbd.records import Digest, Record

Kind = Literal["none", "empirical", "certified", "exact"]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Delta = Annotated[float, Field(gt=0, lt=1)]
WARNING = "Warning: "
"""how an assumption begins that every command prints beside its result"""


class Guarantee(Record):
    """The kind of a guarantee, ε and δ where they are proven, and the assumptions; `none` before any deletion."""

    kind: Kind = "none"
    epsilon: float | None = None
    delta: float | None = None
    assumptions: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The assumptions that weaken the guarantee most."""
        return tuple(text for text in self.assumptions if text.startswith(WARNING))

    @model_validator(mode="after")
    def _no_epsilon_without_proof(self) -> Self:
        proven = self.kind in {"certified", "exact"}
        if not proven and (self.epsilon is not None or self.delta is not None):
            raise ValueError(f"a guarantee of kind {self.kind} has no (ε, δ)")
        if proven and (self.epsilon is None or self.delta is None or not self.assumptions):
            raise ValueError(f"a guarantee of kind {self.kind} needs (ε, δ) and the assumptions under which they hold")
        return self


class LineageBudget(Record):
    """What the deletions of a lineage have cost before and after this one, in ρ and as ε at δ."""

    rho_before: NonNegative
    rho_after: NonNegative
    epsilon_before: NonNegative
    epsilon_after: NonNegative
    delta: Delta
    limit: Positive
    entry: Digest
    """digest of this deletion's charge in the ledger"""


class LedgerEntry(Record):
    """A charge, made before the noise is drawn, a release, made when the new model is in place, or a restored charge.

    A restored charge stands for one that was lost and that a certificate states; `deletion` is the digest of that one.
    """

    previous: Digest
    salt: Digest
    """32 random bytes: a certificate shows the digest of its charge, which must not confirm a guess of old weights"""
    event: Literal["charge", "release", "restored"]
    deletion: Digest
    modalities: tuple[str, ...]
    rho: NonNegative
    """what this deletion costs"""
    epsilon: NonNegative
    """ε of the whole lineage once this deletion is counted"""
    delta: Delta
    before: Digest
    """SHA-256 of the weights that are deleted from"""
    after: Digest | None = None
    """SHA-256 of the released weights"""

    @property
    def digest(self) -> str:
        """SHA-256 of the entry, and through `previous` of all before it."""
        return canonical_digest(self.to_plain())


class LedgerLine(Record):
    """A line of `LINEAGE.jsonl`: an entry with its digest."""

    entry: LedgerEntry
    sha256: Digest

"""What is guaranteed of a deletion, and the privacy budget that it is charged to.

The same records are in `model.json`, `deletion.json`, certificates and the ledger of a lineage. `KINDS` says once what
each kind of guarantee claims and what it is called; every other package reads it there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mbd.files import canonical_digest
from mbd.records import Digest, Record

Kind = Literal["none", "empirical", "attested", "certified", "exact"]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Delta = Annotated[float, Field(gt=0, lt=1)]
WARNING = "Warning: "
"""how an assumption begins that every command prints beside its result"""


@dataclass(frozen=True)
class KindRules:
    """What a certificate of one kind claims, and how that is said; see :meth:`Guarantee.say` for what is filled in."""

    claim: str
    """what is claimed of a model, in a few words"""
    short: str
    """the same in brackets behind the name of the kind"""
    evidence: str
    """what the claim rests on: the end of a sentence about who states it"""
    headline: str
    """of a report"""
    sentence: str
    """for a person who wants one sentence"""
    explanation: tuple[str, str]
    """for those who want to know what it rests on: a lead, and the sentence after it"""
    proven: bool = False
    """whether the claim is proven under the assumptions, so that there are ε and δ"""
    never_saw: bool = False
    """whether it is claimed of every released tensor that its training never saw what was deleted"""
    hides_digests: bool = True
    """whether digests of old weights and data are committed to and not disclosed"""


KINDS: Mapping[Kind, KindRules] = {
    "exact": KindRules(
        claim="byte for byte a model that never saw {deleted}",
        short="byte for byte",
        evidence="this can be checked by training again without it",
        headline='Model "{model}" is {claim}',
        sentence="Under the assumptions below, the released weights are byte for byte those of a model that never saw "
        "it.",
        explanation=(
            "Exact.",
            "Under the assumptions below, the released weights are byte for byte those of a model that never saw what "
            "was deleted (ε = 0).",
        ),
        proven=True,
        never_saw=True,
    ),
    "certified": KindRules(
        claim="({epsilon:g}, {delta:g})-indistinguishable from a model that never saw {deleted}",
        short="ε = {epsilon:g}, δ = {delta:g}",
        evidence="the evidence is a proof under the assumptions that the certificate lists",
        headline='Model "{model}" is {claim}',
        sentence="Under the assumptions below, it is proven that the released weights reveal only a limited amount "
        "about it; the limit is ε = {epsilon:g}, δ = {delta:g}, and smaller is stricter.",
        explanation=(
            "Certified.",
            "Under the assumptions below, the released weights are (ε, δ)-indistinguishable, with ε = {epsilon:g} and "
            "δ = {delta:g}, from those of a model that never saw what was deleted.",
        ),
        proven=True,
    ),
    "attested": KindRules(
        claim="the issuer states that it never saw {deleted}; nothing is proven",
        short="the issuer says so",
        evidence="the evidence is the word of the issuer",
        headline='The issuer states that model "{model}" never saw {deleted}',
        sentence="This rests on the word of the issuer: the released weights were trained elsewhere, and no record of "
        "that training shows what they saw.",
        explanation=(
            "Attested: the issuer says so.",
            "The released weights are those of a model that was trained elsewhere, of which the issuer states that it "
            "never saw what was deleted. Its training is not recorded, so it cannot be repeated. The attacks below "
            "compare the model with itself: they would not find what it saw.",
        ),
        never_saw=True,
    ),
    "empirical": KindRules(
        claim="nothing is proven; attacks have to show that no {deleted} is left",
        short="tests, not a proof",
        evidence="the evidence is tests, not a proof",
        headline='Attacks found no {deleted} in model "{model}"',
        sentence="This rests on tests, not on a proof: within the tolerance stated below, attacks on the released "
        "model found no more of it than the same attacks on a model that never saw it.",
        explanation=(
            "Empirical: nothing is proven.",
            "The attacks below were run on the released model and found no more than on a model that never saw what "
            "was deleted.",
        ),
        hides_digests=False,
    ),
}
"""the kinds of guarantee, strongest first"""


def claimable(declared: Kind) -> tuple[Kind, ...]:
    """Return the kinds that a deletion by a method of this kind can claim.

    An exact deletion that releases weights which were trained elsewhere is attested.
    """
    return (declared, "attested") if declared == "exact" else (declared,)


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

    @property
    def rules(self) -> KindRules:
        """What its kind claims; there is none of a model before any deletion."""
        return KINDS[self.kind]

    @property
    def words(self) -> str:
        """The kind, and in brackets what it claims."""
        return f"{self.kind} ({self.say(self.rules.short)})"

    def say(self, words: str, deleted: str = "", model: str = "") -> str:
        """Return `words` of the kind's rules, filled in for a model from which `deleted` was deleted."""
        names = {"deleted": deleted, "model": model, "epsilon": self.epsilon, "delta": self.delta}
        return words.format(claim=self.rules.claim.format(**names), **names)

    @model_validator(mode="after")
    def _no_epsilon_without_proof(self) -> Self:
        proven = self.kind != "none" and self.rules.proven
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

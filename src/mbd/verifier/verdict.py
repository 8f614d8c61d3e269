"""What a verification found: each check by name, and the verdict on the whole.

A check is `passed`, `failed`, or `not checkable` with what was missing. Each says which verdict it leads to if it is
not passed; the worst of them is the verdict (:mod:`mbd.formats.verdict`). A signature that could not be checked counts
as no signature, and a certificate of which no store says whether it is in force is not verified.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import computed_field

from mbd.formats.predicate import Erasure
from mbd.formats.verdict import DECISIONS, VERDICTS, Decision, VerdictRules
from mbd.markdown import ShownInNotebooks
from mbd.records import Digest, Record

Outcome = Literal["passed", "failed", "not checkable"]
CONSISTENCY, WITHDRAWAL, REPLACEMENT = "log consistency", "not withdrawn", "not replaced"
STANDING = (CONSISTENCY, WITHDRAWAL, REPLACEMENT)
"""checks that only the store in which a certificate was published can answer"""
REPRODUCTION = "reproduction"
"""the check that trains again, on request"""


class Check(Record):
    """One check."""

    name: str
    outcome: Outcome
    reason: str
    """what was found, or what was missing, in one sentence"""
    verdict: Decision | None = None
    """what this check alone makes of the certificate; null: nothing is against it"""


class Successor(Record):
    """The release of a name that has taken the place of a certified model."""

    kind: Literal["certificate", "registration"]
    digest: Digest
    """SHA-256 of its envelope"""
    address: str
    """where it is published"""
    current: bool
    """whether it is the current release; if not, it was withdrawn as well, and there is none"""
    releases: int
    """how many releases of the name came after the certified one, up to this one"""

    @property
    def label(self) -> str:
        """What it is called beside its address."""
        return "Current release" if self.current else "Last release, withdrawn"


class Verdict(ShownInNotebooks, Record):
    """Everything `mbd verify` found; this is what `--json` prints."""

    format: Literal["urn:missing-by-design:verdict:v1"] = "urn:missing-by-design:verdict:v1"
    source: str
    """where the bundle was read from"""
    decision: Decision
    certificate: str | None
    """SHA-256 of the envelope; null if there is none that can be read"""
    claims: dict[str, Any]
    """what the certificate says, in short; meaningful only if it is verified"""
    model: str | None
    """the model folder that was compared with the certificate; null: no model was given"""
    store: str | None
    """the store that was asked whether the certificate is in force; null: none was asked"""
    trust: Digest | None
    """SHA-256 of the trust that was used; compare it with the digest that the issuer announced"""
    trust_file: str | None = None
    """where it was read"""
    successor: Successor | None = None
    """the release that has taken the place of the certified model; null: none has"""
    checks: tuple[Check, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def summary(self) -> str:
        """The verdict in words, whether an exact deletion was reproduced, and whether a model was given."""
        repeated, without = "", "" if self.model else "; no model was given"
        if self.verified and self.claims["guarantee"]["kind"] == "exact":
            done = any(check.name == REPRODUCTION for check in self.checks)  # it has passed, or this is not verified
            repeated = " and reproduced" if done else ", not reproduced"
        return f"{self.decision.upper()}{repeated}: certificate {self.certificate or 'unreadable'}{without}"

    def to_text(self) -> str:
        """Return the verdict as `mbd verify` prints it."""
        from mbd.verifier.words import verdict_text  # noqa: PLC0415 -- which imports this

        return verdict_text(self)

    @property
    def rules(self) -> VerdictRules:
        """What the verdict means."""
        return VERDICTS[self.decision]

    @property
    def verified(self) -> bool:
        """Whether the certificate is genuine and in force."""
        return self.decision == "verified"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def genuine(self) -> bool:
        """Whether nothing in the certificate and its files is wrong or missing; it may be in force or not."""
        return decide(check for check in self.checks if check.name not in STANDING) == "verified"

    @property
    def fingerprint(self) -> str | None:
        """The short form of `trust`, to compare by eye."""
        return self.trust and fingerprint(self.trust)

    @property
    def problems(self) -> tuple[Check, ...]:
        """The checks that are against the certificate."""
        return problems_of(self.checks)

    def check(self, name: str) -> Check:
        """Return the check of this name."""
        return next(check for check in self.checks if check.name == name)

    def with_check(self, check: Check) -> "Verdict":
        """Return the verdict with one more check, decided again."""
        checks = (*self.checks, check)
        return self.model_copy(update={"checks": checks, "decision": decide(checks)})


def problems_of(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return the checks that are against a certificate, the gravest first and the store's last."""
    against = [check for check in checks if check.verdict]
    return tuple(
        sorted(against, key=lambda check: (-DECISIONS.index(check.verdict or "verified"), check.name in STANDING))
    )


def passed(name: str, reason: str) -> Check:
    """Return a check that holds."""
    return Check(name=name, outcome="passed", reason=reason)


def failed(name: str, reason: str, verdict: Decision = "forged or damaged") -> Check:
    """Return a check that does not hold, and what that makes of the certificate."""
    return Check(name=name, outcome="failed", reason=reason, verdict=verdict)


def not_checkable(name: str, reason: str, *, required: bool = False) -> Check:
    """Return a check for which something was missing; `required`: the certificate is not verified without it."""
    return Check(name=name, outcome="not checkable", reason=reason, verdict="not verified" if required else None)


def decide(checks: Iterable[Check]) -> Decision:
    """Return the verdict that the checks lead to: the worst of them."""
    return max((check.verdict or "verified" for check in checks), key=DECISIONS.index, default="verified")


def fingerprint(digest: str) -> str:
    """Return the first 16 digits of a SHA-256 in groups, to compare by eye."""
    return " ".join(digest[start : start + 4] for start in range(0, 16, 4))


@dataclass(frozen=True)
class StoreStatus:
    """What the store says of a certificate."""

    checks: tuple[Check, ...]
    reaudit_by: datetime | None = None
    """by when to audit again, as set by the last audit that passed"""
    erasure: Erasure | None = None
    """what the last purge claims about copies of the old weights"""
    successor: Successor | None = None


def not_asked(
    reason: str = "no store was asked, and only the one it was published in knows (--store URL)",
) -> StoreStatus:
    """Return what is known of a certificate where no store says whether it is in force."""
    return StoreStatus(tuple(not_checkable(name, reason, required=True) for name in STANDING))

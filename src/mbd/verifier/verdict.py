"""What a verification found: each check by name, and whether the whole deserves trust.

A check is `passed`, `failed`, or `not checkable` with what was missing. The decision is

    verified     all required checks passed, none failed, and the store's log shows that the certificate is in force
    authentic    the same, but the store was not asked: the certificate may have been revoked or superseded since
    failed       a check failed, or a required one could not be made

A signature that could not be checked counts as no signature, and a standing that was not checked as unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import computed_field

from mbd.formats.predicate import Erasure
from mbd.records import Digest, Record

Outcome = Literal["passed", "failed", "not checkable"]
Decision = Literal["verified", "authentic", "failed"]
CONSISTENCY, STATE, RETURNED = "log consistency", "not superseded or revoked", "no revoked modality"
STANDING = (CONSISTENCY, STATE, RETURNED)
"""checks that only the store in which a certificate was published can answer"""
_WORDS: dict[Decision, str] = {
    "verified": "VERIFIED",
    "authentic": "AUTHENTIC, STANDING UNKNOWN",
    "failed": "FAILED",
}


class Check(Record):
    """One check."""

    name: str
    outcome: Outcome
    reason: str
    """what was found, or what was missing, in one sentence"""
    required: bool = False
    """whether there is no trust without it"""


class Verdict(Record):
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
    checks: tuple[Check, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def summary(self) -> str:
        """The decision in words, and whether a model was given."""
        without = "" if self.model else "; no model was given"
        return f"{_WORDS[self.decision]}: certificate {self.certificate or 'unreadable'}{without}"

    @property
    def verified(self) -> bool:
        """Whether the certificate is authentic and in force."""
        return self.decision == "verified"

    @property
    def authentic(self) -> bool:
        """Whether the certificate is authentic; whether it is in force may be unknown."""
        return self.decision != "failed"

    @property
    def fingerprint(self) -> str | None:
        """The short form of `trust`, to compare by eye."""
        return self.trust and fingerprint(self.trust)

    @property
    def problems(self) -> tuple[Check, ...]:
        """The checks that make the decision `failed`."""
        return problems_of(self.checks)

    def check(self, name: str) -> Check:
        """Return the check of this name."""
        return next(check for check in self.checks if check.name == name)

    def with_check(self, check: Check) -> "Verdict":
        """Return the verdict with one more check, decided again."""
        checks = (*self.checks, check)
        return self.model_copy(update={"checks": checks, "decision": decide(checks)})


def problems_of(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return the checks that failed, and the required ones that could not be made."""
    return tuple(c for c in checks if c.outcome == "failed" or (c.required and c.outcome != "passed"))


def passed(name: str, reason: str, *, required: bool = False) -> Check:
    """Return a check that holds."""
    return Check(name=name, outcome="passed", reason=reason, required=required)


def failed(name: str, reason: str, *, required: bool = False) -> Check:
    """Return a check that does not hold."""
    return Check(name=name, outcome="failed", reason=reason, required=required)


def not_checkable(name: str, reason: str, *, required: bool = False) -> Check:
    """Return a check for which something was missing."""
    return Check(name=name, outcome="not checkable", reason=reason, required=required)


def decide(checks: Iterable[Check]) -> Decision:
    """Return the decision that the checks carry."""
    checks = list(checks)
    if problems_of(checks):
        return "failed"
    in_force = {check.name for check in checks if check.outcome == "passed"} >= set(STANDING)
    return "verified" if in_force else "authentic"


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


def not_asked(reason: str = "only the store it was published in knows (--store URL)") -> StoreStatus:
    """Return what is known of a certificate where no store says whether it is in force."""
    return StoreStatus(tuple(not_checkable(name, reason) for name in STANDING))

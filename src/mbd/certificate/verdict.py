"""What a verification found: each check by name, and whether the whole deserves trust.

A check is `passed`, `failed`, or `not checkable` with what was missing. The decision is

    verified        no check failed, and all required checks were made
    failed          at least one check failed
    not verified    no check failed, but a required one could not be made

Only `verified` is a success: a signature that could not be checked counts as no signature.
"""

from collections.abc import Iterable
from typing import Any, Literal

from mbd.records import Record

Outcome = Literal["passed", "failed", "not checkable"]
Decision = Literal["verified", "failed", "not verified"]


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
    trust: str | None
    """SHA-256 of the trust file that was used; compare it with the digest that the issuer announced"""
    checks: tuple[Check, ...]

    @property
    def verified(self) -> bool:
        """Whether the certificate deserves trust."""
        return self.decision == "verified"

    @property
    def problems(self) -> tuple[Check, ...]:
        """The checks that prevent `verified`."""
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
    if any(check.outcome == "failed" for check in checks):
        return "failed"
    if any(check.required and check.outcome != "passed" for check in checks):
        return "not verified"
    return "verified"

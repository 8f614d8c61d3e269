"""What a verification found: each check by name, and the verdict on the whole.

A check is `passed`, `failed`, or `not checkable` with what was missing. Each says which verdict it leads to if it is
not passed; the worst of them is the verdict (:mod:`mbd.formats.verdict`). A signature that could not be checked counts
as no signature, and a certificate of which no store says whether it is in force is not verified.

In words a verdict is its summary, one sentence for somebody who reads nothing else, the facts, and the checks: those
that stand against the certificate, or all. Checks with the same outcome and the same reason share a line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import computed_field

from mbd.formats.guarantee import Guarantee
from mbd.formats.predicate import COPIES, Erasure, deleted_words
from mbd.formats.verdict import DECISIONS, VERDICTS, Decision, VerdictRules
from mbd.markdown import ShownInNotebooks
from mbd.records import Digest, Record

Outcome = Literal["passed", "failed", "not checkable"]
CONSISTENCY, WITHDRAWAL, REPLACEMENT = "log consistency", "not withdrawn", "not replaced"
STANDING = (CONSISTENCY, WITHDRAWAL, REPLACEMENT)
"""checks that only the store in which a certificate was published can answer"""
SIGNATURES = "signatures"
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
        return write_verdict(self)

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


def status_without_store(
    reason: str = "no store was asked, and only the one it was published in knows (--store URL)",
) -> StoreStatus:
    """Return what is known of a certificate where no store says whether it is in force."""
    return StoreStatus(tuple(not_checkable(name, reason, required=True) for name in STANDING))


# A verdict in words

_DETAILS = re.compile(r" \((?:[^()]|\([^()]*\))*\)$")
_WIDTH = 17


def write_verdict(verdict: Verdict, *, every_check: bool = False) -> str:
    """Return a verdict as `mbd verify` prints it."""
    lines = [verdict.summary, _sentence(verdict), ""]
    lines += [f"  {name:<{_WIDTH}}  {value}" for name, value in _facts(verdict)]
    return "\n".join([*lines, *_checks(verdict, every_check=every_check)])


def _sentence(verdict: Verdict) -> str:
    """Return the sentence for a lawyer."""
    rules = verdict.rules
    if verdict.verified:
        return f"{rules.sentence.removesuffix('.')}: {write_claim(verdict.claims)}."
    if verdict.decision == "replaced":
        stated = write_claim(verdict.claims)
        return f"{rules.sentence} {stated[:1].upper()}{stated[1:]}."
    reason = verdict.problems[0].reason.rstrip(".")  # that of a server may end a sentence
    if verdict.genuine and verdict.decision == "not verified":
        unknown = f"The certificate is genuine, but whether it is in force is not known: {_DETAILS.sub('', reason)}."
        return f"{unknown} {rules.to_do}"
    return f"{rules.sentence} {begin_sentence(reason)}. {rules.to_do}"


def write_claim(claims: Mapping[str, Any]) -> str:
    """Return in one sentence who states what, and on what evidence."""
    guarantee = Guarantee.model_validate(claims["guarantee"])
    issuer = claims["issuer"]["name"] or f"the holder of key {fingerprint(claims['keys'][0])}"
    return (
        f"{issuer} states that model {claims['model']} no longer holds {_deleted(claims)}; {guarantee.rules.evidence}"
    )


def begin_sentence(reason: str) -> str:
    """Return a reason as the beginning of a sentence, without the details that it may end with in brackets."""
    text = _DETAILS.sub("", reason)
    is_name = "." in text.partition(" ")[0] or not text[:1].isascii()  # a file and a symbol keep their letters
    return text if is_name else text[:1].upper() + text[1:]


def _deleted(claims: Mapping[str, Any]) -> str:
    return deleted_words(claims["modalities"], claims["persons"])


def _facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    signed = any(check.name == SIGNATURES and check.outcome == "passed" for check in verdict.checks)
    claims = verdict.claims if signed and verdict.decision != "forged or damaged" else {}
    if claims:
        guarantee = Guarantee.model_validate(claims["guarantee"])
        yield "Deleted", f"{_deleted(claims)}, from model {claims['model']}"
        yield "Guarantee", guarantee.words
        yield from (("", text) for text in guarantee.warnings)
        name, contact, keys = claims["issuer"]["name"], claims["issuer"]["contact"], claims["keys"]
        by = f"signed by key{'s' * (len(keys) > 1)} {', '.join(map(fingerprint, keys))} …"
        yield "Issuer", f"{name or 'not stated'}{f' ({contact})' if contact else ''}; {by}"
        yield "Signed", _day(claims["issued"])
    yield "In force", _in_force(verdict)
    if verdict.successor:
        yield verdict.successor.label, verdict.successor.address
    if claims:
        yield "Old copies", COPIES[claims["erasure"]["claim"]]
        ended = f"not due: the certificate was {verdict.decision}"
        yield "Next audit", ended if verdict.rules.ended else f"by {_day(claims['reaudit_by'])}"
    yield "Weights", f"compared with {verdict.model}" if verdict.model else "none were compared (--model DIR)"
    trust = f"{verdict.trust_file or ''}, fingerprint {verdict.fingerprint}".removeprefix(", ")
    yield "Trust file", trust if verdict.trust else "none"


def _in_force(verdict: Verdict) -> str:
    if verdict.store is None:
        return "not known: no store was asked (--store URL)"
    if ended := next(filter(_says_ended, verdict.problems), None):
        return f"no, by the log of {verdict.store}: {ended.reason}"
    return f"yes, by the log of {verdict.store}" if verdict.verified else "not known"


def _says_ended(check: Check) -> bool:
    return check.verdict is not None and VERDICTS[check.verdict].ended


def _checks(verdict: Verdict, *, every_check: bool) -> Iterator[str]:
    passed = sum(check.outcome == "passed" for check in verdict.checks)
    yield f"  {'Checks':<{_WIDTH}}  {passed} of {len(verdict.checks)} passed{'' if every_check else ' (-v lists all)'}"
    listed = verdict.checks if every_check else [check for check in verdict.problems if not _says_ended(check)]
    if listed:
        yield ""
    for outcome, names, reason in _grouped(listed):
        yield f"  {outcome:<{_WIDTH}}  {', '.join(names)}: {reason}"


def _grouped(checks: Iterable[Check]) -> Iterator[tuple[str, list[str], str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        outcome = check.verdict if check.outcome == "failed" and check.verdict else check.outcome
        groups.setdefault((outcome, check.reason), []).append(check.name)
    return ((outcome, names, reason) for (outcome, reason), names in groups.items())


def _day(time: str) -> str:
    return f"{datetime.fromisoformat(time):%Y-%m-%d}"

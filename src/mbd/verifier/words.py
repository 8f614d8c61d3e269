"""A verdict in words: the verdict, one sentence for somebody who reads nothing else, the facts, then the checks.

The checks are one line unless one stands against the certificate: then those are listed. Checks with the same outcome
and the same reason share a line, so that nothing is said twice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from mbd.formats.guarantee import Guarantee
from mbd.formats.verdict import VERDICTS
from mbd.verifier.reader import SIGNATURES
from mbd.verifier.verdict import Check, Verdict, fingerprint

COPIES = {
    "none": "nothing is claimed (no purge was published)",
    "partial": "searched for and removed, but some remain, or may remain",
    "complete": "searched for and removed; none remains in the places searched",
}
_DETAILS = re.compile(r" \((?:[^()]|\([^()]*\))*\)$")
_WIDTH = 17


def verdict_text(verdict: Verdict, *, every_check: bool = False) -> str:
    """Return a verdict as `mbd verify` prints it."""
    lines = [verdict.summary, _sentence(verdict), ""]
    lines += [f"  {name:<{_WIDTH}}  {value}" for name, value in _facts(verdict)]
    return "\n".join([*lines, *_checks(verdict, every_check=every_check)])


def _sentence(verdict: Verdict) -> str:
    """Return the sentence for a lawyer."""
    rules = verdict.rules
    if verdict.verified:
        return f"{rules.sentence.removesuffix('.')}: {claim(verdict.claims)}."
    if verdict.decision == "replaced":
        stated = claim(verdict.claims)
        return f"{rules.sentence} {stated[:1].upper()}{stated[1:]}."
    reason = verdict.problems[0].reason
    if verdict.genuine and verdict.decision == "not verified":
        return f"The certificate is genuine, but whether it is in force is not known: {_DETAILS.sub('', reason)}."
    return f"{rules.sentence} {begin_sentence(reason)}. {rules.to_do}"


def claim(claims: Mapping[str, Any]) -> str:
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
    names, persons = ", ".join(claims["modalities"]), claims["persons"]
    return f"{names} of {persons} person{'s' * (persons > 1)}" if persons else names


def _facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    signed = any(check.name == SIGNATURES and check.outcome == "passed" for check in verdict.checks)
    claims = verdict.claims if signed and verdict.decision != "forged or damaged" else {}
    if claims:
        guarantee = Guarantee.model_validate(claims["guarantee"])
        yield "Deleted", f"{_deleted(claims)}, from model {claims['model']}"
        yield "Guarantee", f"{guarantee.kind} ({guarantee.say(guarantee.rules.short, _deleted(claims))})"
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
        return f"no: {ended.reason}, by the log of {verdict.store}"
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

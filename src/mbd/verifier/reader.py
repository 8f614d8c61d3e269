"""The one reader of signed envelopes. Whatever believes a published statement has read it here.

The flow, in this order; docs/certificate-format.md defines each form.

1. **Envelope.** The bytes are one DSSE envelope in canonical JSON. A set of signatures then has one form, so the
   SHA-256 of the bytes can name the certificate and be its leaf in the log.
2. **Payload type.** It is that of in-toto statements. Signatures cover the type: what a key has signed as another kind
   of document must not be read as a statement.
3. **Statement.** The payload follows the schema of its `predicateType`, with no unknown key: a reader that skips what
   it does not know can be made to miss a restriction.
4. **Canonical form.** The payload is, byte for byte, the canonical form (RFC 8785) of what it holds. Two readers that
   resolve a duplicate key or a long number differently would otherwise see two statements under one signature.
5. **Log inclusion.** `proof.json` leads from the envelope to the root of a checkpoint that the log has signed. This
   comes before the signatures because the log's time bounds the time at which they can have been made.
6. **Signatures.** `threshold` different holders of the trust file have signed the type and the payload.
7. **Key validity.** Their keys were valid at the claimed time and when the entry was logged, and not revoked by then
   (:mod:`mbd.trust.trust_file` has the rule and its reasons); the claimed time is not in the future.

Steps 1 to 4 need no key (:func:`parse_envelope`); :func:`verify_envelope` makes all of them, and so does
:func:`verify_logged` for the entries of a log that was read itself. What the files of a certificate are and whether its
claims hold is checked afterwards (:mod:`mbd.certificate.verification`), and so is whether it was withdrawn
(:mod:`mbd.history.state`).
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import rfc8785

from mbd.errors import DataError, MbdError, VerificationError
from mbd.formats.statement import AnyStatement, UnknownTypeError, is_canonical, parse_payload
from mbd.formats.verdict import Decision
from mbd.log.checkpoint import Inclusion, UnknownLogKeyError, leaf_of, parse_note, verify_checkpoint
from mbd.records import now
from mbd.trust.envelope import PAYLOAD_TYPE, Envelope, EnvelopeSignature
from mbd.trust.public_keys import is_signature
from mbd.trust.trust_file import CLOCKS_DIFFER_BY, NO_TRUST_HINT, Logged, Trust, TrustedKey, explain_refusal
from mbd.verifier.verdict import SIGNATURES, Check, failed, not_checkable, passed, problems_of

SCHEMA, CANONICAL = "schema", "canonical form"
VALIDITY = "key validity"
INCLUSION, CHECKPOINT = "log inclusion", "log checkpoint"
NO_TRUST = f"there is no trust file, so no signature can be attributed to anyone; {NO_TRUST_HINT}"
_LOG_SIGNATURES = 2  # the log signs twice, plainly and with a date; any other signature was added by a third party


@dataclass(frozen=True)
class ParsedEnvelope:
    """What could be read of an envelope and of the proof that it is logged, and the checks made on the way."""

    checks: tuple[Check, ...]
    envelope: Envelope | None = None
    statement: AnyStatement | None = None
    inclusion: Inclusion | None = None
    """the proof of inclusion, if it holds"""
    logged: Logged | None = None
    """where and when the envelope was logged, if that is proven"""

    def require(self, file: Path | str | None = None) -> AnyStatement:
        """Return the statement; VerificationError with the first problem if any check was not passed."""
        if problem := next(iter(problems_of(self.checks)), None):
            raise VerificationError(problem.reason, file=file, key=problem.name)
        if self.statement is None:
            raise VerificationError("the envelope holds no statement", file=file)
        return self.statement


def parse_envelope(data: bytes) -> ParsedEnvelope:
    """Make steps 1 to 4: parse an envelope and the statement in it. No signature is verified."""
    wrong_form = None
    try:
        envelope = Envelope.parse(data)
    except VerificationError as error:
        other = _in_another_form(data)
        if other is None:
            return _unreadable(error)
        envelope, wrong_form = other, "the envelope is not in canonical form"
    if envelope.payload_type != PAYLOAD_TYPE:
        return _unreadable(VerificationError(f"the payload type is {envelope.payload_type!r}, not {PAYLOAD_TYPE!r}"))
    try:
        statement = parse_payload(envelope.content)
    except VerificationError as error:
        return _unreadable(error)
    if wrong_form is None and not is_canonical(envelope.content):
        wrong_form = "the payload is not in canonical form"
    schema = passed(SCHEMA, f"a signed in-toto statement of type {statement.predicateType}")
    if wrong_form:
        form = failed(CANONICAL, wrong_form)
    else:
        form = passed(CANONICAL, "envelope and payload are in canonical form")
    return ParsedEnvelope((schema, form), envelope, statement)


def verify_envelope(
    data: bytes, proof: bytes | None, trust: Trust | None, *, at: datetime | None = None, unpublished: bool = False
) -> ParsedEnvelope:
    """Make all steps.

    Args:
        data: The envelope.
        proof: `proof.json`, or None if there is none.
        trust: Who is trusted. Without it, steps 5 to 7 are not checkable.
        at: The time that counts as now.
        unpublished: The statement is about to be published: a missing proof is no problem.

    """
    parsed = parse_envelope(data)
    if parsed.envelope is None or parsed.statement is None:
        return parsed
    log = verify_inclusion(data, proof, trust)
    if unpublished and proof is None:
        log = ParsedEnvelope(tuple(check.model_copy(update={"verdict": None}) for check in log.checks))
    signing = check_signatures(parsed.envelope, trust, parsed.statement.predicate.issued, log.logged, at or now())
    checks = (*parsed.checks, *signing, *log.checks)
    return replace(parsed, checks=checks, inclusion=log.inclusion, logged=log.logged)


def verify_logged(data: bytes, trust: Trust, logged: Logged) -> ParsedEnvelope:
    """Make all steps for an envelope of which it is known that it is in the log, so that step 5 needs no proof."""
    parsed = parse_envelope(data)
    if parsed.envelope is None or parsed.statement is None:
        return parsed
    signing = check_signatures(parsed.envelope, trust, parsed.statement.predicate.issued, logged, logged.time)
    return replace(parsed, checks=(*parsed.checks, *signing), logged=logged)


def is_void(parsed: ParsedEnvelope, trust: Trust, index: int) -> bool:
    """Return whether an envelope that was refused counts for nothing, whenever it was logged.

    That is so if all its signers are in the trust file, and too few of their signatures count even at the most
    favourable time of logging: a reader of this trust file then knows that it may be ignored. With any other reason (an
    unknown format, a key that is too new for this trust file, a time of logging that was made to look later by
    removing checkpoints) it could be a statement that counts.
    """
    if parsed.envelope is None or parsed.statement is None:
        return False
    if not {s.keyid for s in parsed.envelope.signatures} <= {key.id for key in trust.keys}:
        return False
    issued = parsed.statement.predicate.issued
    favourable = Logged(index, issued)
    return bool(problems_of(check_signatures(parsed.envelope, trust, issued, favourable, issued)))


def _unreadable(error: MbdError) -> ParsedEnvelope:
    where = f" ({error.key})" if error.key else ""
    verdict: Decision = "not verified" if isinstance(error, UnknownTypeError) else "forged or damaged"
    schema = failed(SCHEMA, error.problem + where, verdict)
    return ParsedEnvelope((schema, not_checkable(CANONICAL, "the envelope cannot be read", required=True)))


def _in_another_form(data: bytes) -> Envelope | None:
    """Return the envelope that `data` would be if it were in canonical form, to report the more precise problem."""
    try:
        return Envelope.parse(rfc8785.dumps(json.loads(data)))
    except (VerificationError, ValueError, RecursionError):
        return None


# Step 5


def verify_inclusion(envelope: bytes, proof: bytes | None, trust: Trust | None) -> ParsedEnvelope:
    """Check the proof of inclusion and the checkpoint in it."""
    if proof is None:
        return _unknown("there is no proof.json: the certificate was not published, or its proof was removed")
    try:
        inclusion = Inclusion.from_bytes(proof, "proof of inclusion")
        if inclusion.to_bytes() != proof:
            raise VerificationError("the proof of inclusion is not in its one form")
    except (DataError, VerificationError) as error:
        wrong = failed(INCLUSION, error.problem)
        return ParsedEnvelope((wrong, not_checkable(CHECKPOINT, "it is part of the proof", required=True)))
    if trust is None:
        return _unknown(NO_TRUST)
    try:
        logged = inclusion.verify(leaf_of(envelope), trust)
    except VerificationError as error:
        return _not_logged(inclusion, trust, error)
    if len(parse_note(inclusion.checkpoint)[1]) != _LOG_SIGNATURES:
        added = VerificationError("the checkpoint carries signatures that are not the log's")
        return _not_logged(inclusion, trust, added)
    entry = f"entry {logged.index} of the log {trust.log_origin}"
    head = f"log of size {inclusion.tree_size}, signed {_day(logged.time)}"
    checks = passed(INCLUSION, entry), passed(CHECKPOINT, head)
    return ParsedEnvelope(checks, inclusion=inclusion, logged=logged)


def _not_logged(inclusion: Inclusion, trust: Trust, error: VerificationError) -> ParsedEnvelope:
    try:
        verify_checkpoint(inclusion.checkpoint, trust)
    except VerificationError as wrong:
        unknown = not_checkable(INCLUSION, "the checkpoint cannot be trusted", required=True)
        verdict: Decision = "not verified" if isinstance(wrong, UnknownLogKeyError) else "forged or damaged"
        return ParsedEnvelope((unknown, failed(CHECKPOINT, wrong.problem, verdict)))
    signed = passed(CHECKPOINT, "signed by the log")
    return ParsedEnvelope((failed(INCLUSION, error.problem), signed))


def _unknown(why: str) -> ParsedEnvelope:
    inclusion, checkpoint = (not_checkable(name, why, required=True) for name in (INCLUSION, CHECKPOINT))
    return ParsedEnvelope((inclusion, checkpoint))


# Steps 6 and 7


@dataclass(frozen=True)
class SignatureFinding:
    """What is known of one signature."""

    keyid: str
    key: TrustedKey | None
    """None: not in the trust file"""
    wrong: str | None
    """why the signature itself does not count (step 6)"""
    invalid: str | None
    """why its key was not valid (step 7)"""

    def __str__(self) -> str:
        return f"{self.key.name if self.key else self.keyid[:12]}: {self.wrong or self.invalid}"


def check_signatures(
    envelope: Envelope, trust: Trust | None, issued: datetime, logged: Logged | None, at: datetime
) -> tuple[Check, Check]:
    """Check that enough holders have signed, and that their keys were valid then.

    Args:
        envelope: What was signed.
        trust: Who is trusted.
        issued: When it was signed, by the statement's own account.
        logged: When it was logged, by the log's account.
        at: The time that counts as now.

    """
    if trust is None:
        signatures, validity = (not_checkable(name, NO_TRUST, required=True) for name in (SIGNATURES, VALIDITY))
        return signatures, validity
    known = {key.id: key for key in trust.keys}
    findings = [_signature(s, known.get(s.keyid), envelope.signed, issued, logged) for s in envelope.signatures]
    holders, needed = _holders(f for f in findings if not f.wrong), trust.threshold
    if len(holders) < needed:
        return (
            _too_few(findings, len(holders), needed),
            not_checkable(VALIDITY, "there are too few right signatures", required=True),
        )
    signatures = passed(SIGNATURES, f"signed by {', '.join(holders)}; {needed} needed")
    if issued > at + CLOCKS_DIFFER_BY:
        clock = "or the clock of this computer is wrong"
        return signatures, failed(VALIDITY, f"its signing time is in the future, {_day(issued)}, {clock}")
    valid = _holders(f for f in findings if not f.wrong and not f.invalid)
    if len(valid) < needed:
        keys = (
            f"only {len(valid)} of the {needed} keys that have to sign were" if valid else "no key that signed it was"
        )
        return signatures, failed(VALIDITY, f"{keys} valid then ({_reasons(findings)})")
    return signatures, passed(
        VALIDITY, f"the keys of {', '.join(valid)} were valid at the signing time, {_day(issued)}"
    )


def _signature(
    signature: EnvelopeSignature, key: TrustedKey | None, message: bytes, issued: datetime, logged: Logged | None
) -> SignatureFinding:
    if key is None:
        return SignatureFinding(signature.keyid, None, "the key is not in the trust file", None)
    wrong = None
    if key.purpose != "certificate":
        wrong = "this key is not trusted to sign certificates"
    elif not is_signature(key.public, key.scheme, signature.value, message):
        wrong = "the signature is wrong"
    return SignatureFinding(signature.keyid, key, wrong, explain_refusal(key, issued, logged))


def _too_few(findings: Iterable[SignatureFinding], holders: int, needed: int) -> Check:
    """Say that too few have signed: a wrong signature is forged, an unknown key may be in another trust file."""
    if any(f.key and f.wrong for f in findings):
        return failed(
            SIGNATURES, f"what it says was changed after signing, or it was never signed ({_reasons(findings)})"
        )
    if not holders:
        reason = "not signed by anyone in your trust file: a wrong trust file, or not from this issuer"
    else:
        reason = f"signed by {holders} of the {needed} holders of keys that have to sign"
    return failed(SIGNATURES, f"{reason} ({_reasons(findings)})" if _reasons(findings) else reason, "not verified")


def _holders(findings: Iterable[SignatureFinding]) -> list[str]:
    return sorted({f.key.name for f in findings if f.key})


def _reasons(findings: Iterable[SignatureFinding]) -> str:
    return "; ".join(str(f) for f in findings if f.wrong or f.invalid)


def _day(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%SZ}"

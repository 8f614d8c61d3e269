"""Who vouches for a certificate: form, signatures, validity of keys, and the transparency log."""

import json
from dataclasses import dataclass
from datetime import datetime

import rfc8785
from pydantic import ValidationError

from mbd.certificate.envelope import PAYLOAD_TYPE, Envelope, Judgement, judge_signatures
from mbd.certificate.log.checkpoint import verify_checkpoint
from mbd.certificate.log.inclusion import Inclusion, leaf_of
from mbd.certificate.log.note import parse_note
from mbd.certificate.trust import CLOCKS_DIFFER_BY, Logged, Trust, refusal
from mbd.certificate.verify.verdict import Check, failed, not_checkable, passed
from mbd.errors import VerificationError
from mbd.formats.statement import AnyStatement, is_canonical, parse_payload

SCHEMA, CANONICAL = "schema", "canonical form"
SIGNATURES, VALIDITY = "signatures", "key validity"
INCLUSION, CHECKPOINT = "log inclusion", "log checkpoint"
_LOG_SIGNS = 2  # times, plainly and with a date; anything else in a note would be somebody's addition
NO_TRUST = "there is no trust file, so nobody is known whose word would count"


@dataclass(frozen=True)
class ParsedEnvelope:
    """What could be read of an envelope."""

    envelope: Envelope | None
    statement: AnyStatement | None
    checks: tuple[Check, ...]


def read_envelope(data: bytes) -> ParsedEnvelope:
    """Parse an envelope and the statement in it: schema, and the one form in which both may be written."""
    try:
        envelope = Envelope.parse(data)
    except VerificationError as error:
        if (envelope_of := _in_another_form(data)) is None:
            return _unreadable(failed(SCHEMA, error.problem, required=True))
        form = failed(CANONICAL, "the envelope is not written in its one canonical form", required=True)
        return _with_statement(envelope_of, form)
    return _with_statement(envelope, None)


def _with_statement(envelope: Envelope, wrong_form: Check | None) -> ParsedEnvelope:
    if envelope.payload_type != PAYLOAD_TYPE:
        return _unreadable(failed(SCHEMA, f"the signed content is of type {envelope.payload_type!r}", required=True))
    try:
        statement = parse_payload(envelope.content)
    except VerificationError as error:
        where = f" ({error.key})" if error.key else ""
        return _unreadable(failed(SCHEMA, error.problem + where, required=True))
    schema = passed(SCHEMA, f"a signed in-toto statement of type {statement.predicateType}", required=True)
    if wrong_form is None and not is_canonical(envelope.content):
        wrong_form = failed(CANONICAL, "the signed content is not written in its one canonical form", required=True)
    form = wrong_form or passed(CANONICAL, "envelope and content are written in their one form", required=True)
    return ParsedEnvelope(envelope, statement, (schema, form))


def _unreadable(schema: Check) -> ParsedEnvelope:
    form = not_checkable(CANONICAL, "what cannot be read has no form", required=True)
    return ParsedEnvelope(None, None, (schema, form))


def _in_another_form(data: bytes) -> Envelope | None:
    """Return the envelope in data that would be one if it were written as it should be."""
    try:
        return Envelope.parse(rfc8785.dumps(json.loads(data)))
    except (VerificationError, ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class LogFinding:
    """What the proof of inclusion is worth."""

    checks: tuple[Check, Check]
    inclusion: Inclusion | None = None
    """the proof, if it holds"""
    logged: Logged | None = None


def log_finding(envelope: bytes, proof: bytes | None, trust: Trust | None) -> LogFinding:
    """Check the proof of inclusion and the checkpoint in it."""
    if proof is None:
        return _nothing_known("there is no proof.json: the certificate was not published, or its proof was taken away")
    try:
        inclusion = Inclusion.model_validate_json(proof)
        if proof_bytes(inclusion) != proof:
            raise VerificationError("it is not written in its one form")
    except (ValidationError, VerificationError) as error:
        wrong = failed(INCLUSION, f"the proof of inclusion cannot be read: {_first_line(error)}", required=True)
        return LogFinding((wrong, not_checkable(CHECKPOINT, "it is part of the proof", required=True)))
    if trust is None:
        return _nothing_known(NO_TRUST)
    try:
        logged = inclusion.verify(leaf_of(envelope), trust)
    except VerificationError as error:
        return _not_logged(inclusion, trust, error)
    if len(parse_note(inclusion.checkpoint)[1]) != _LOG_SIGNS:
        added = VerificationError("the proof carries signatures that are not the log's")
        return _not_logged(inclusion, trust, added)
    entry = f"entry {logged.index} of the log {trust.log_origin}"
    head = f"{inclusion.tree_size} entries, signed by the log {_day(logged.time)}"
    checks = passed(INCLUSION, entry, required=True), passed(CHECKPOINT, head, required=True)
    return LogFinding(checks, inclusion, logged)


def _not_logged(inclusion: Inclusion, trust: Trust, error: VerificationError) -> LogFinding:
    try:
        verify_checkpoint(inclusion.checkpoint, trust)
    except VerificationError as wrong:
        unknown = not_checkable(INCLUSION, "the checkpoint cannot be trusted", required=True)
        return LogFinding((unknown, failed(CHECKPOINT, wrong.problem, required=True)))
    signed = passed(CHECKPOINT, "signed by the log", required=True)
    return LogFinding((failed(INCLUSION, error.problem, required=True), signed))


def _nothing_known(why: str) -> LogFinding:
    inclusion, checkpoint = (not_checkable(name, why, required=True) for name in (INCLUSION, CHECKPOINT))
    return LogFinding((inclusion, checkpoint))


def proof_bytes(inclusion: Inclusion) -> bytes:
    """Return the one form in which a proof is stored."""
    return inclusion.to_bytes()


def signature_checks(
    envelope: Envelope, trust: Trust | None, issued: datetime, logged: Logged | None, at: datetime
) -> list[Check]:
    """Check that enough holders have signed, and that their keys were valid then."""
    if trust is None:
        return [not_checkable(name, NO_TRUST, required=True) for name in (SIGNATURES, VALIDITY)]
    judged = judge_signatures(envelope, trust, issued, logged)
    right = [one for one in judged if _is_right(one, issued, logged)]
    signed, needed = sorted({one.key.name for one in right if one.key}), trust.threshold
    if len(signed) < needed:
        reason = f"{len(signed)} of the {needed} signatures that are needed are right ({_refusals(judged)})"
        return [
            failed(SIGNATURES, reason, required=True),
            not_checkable(VALIDITY, "there are too few right signatures", required=True),
        ]
    signatures = passed(SIGNATURES, f"signed by {', '.join(signed)}; {needed} needed", required=True)
    if issued > at + CLOCKS_DIFFER_BY:
        return [signatures, failed(VALIDITY, f"it is signed at a time to come, {_day(issued)}", required=True)]
    count = len({one.key.name for one in right if one.key and one.refused is None})
    if count < needed:
        return [
            signatures,
            failed(VALIDITY, f"{count} of {needed} keys were valid ({_refusals(right)})", required=True),
        ]
    return [signatures, passed(VALIDITY, f"{count} keys were valid when they signed, {_day(issued)}", required=True)]


def _is_right(one: Judgement, issued: datetime, logged: Logged | None) -> bool:
    """Whether a signature is right, even if its key was not valid at the time."""
    return one.key is not None and (one.refused is None or one.refused == refusal(one.key, issued, logged))


def _refusals(judged: list[Judgement]) -> str:
    return "; ".join(f"{one.key.name if one.key else one.keyid[:12]}: {one.refused}" for one in judged if one.refused)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return str(error.errors(include_url=False)[0]["msg"])
    return str(error).splitlines()[0]


def _day(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%SZ}"

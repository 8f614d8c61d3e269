"""Checkpoints: the signed head of the log (C2SP tlog-checkpoint), with the time at which it was signed.

    ORIGIN                     whose log it is
    SIZE                       number of leaves
    base64(ROOT)               Merkle tree hash of all of them

The log's key signs twice: plainly, as every reader of such logs expects, and with a date (`note.DATED`).
"""

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from mbd.errors import UsageError, VerificationError
from mbd.log.hashing import HASH_SIZE
from mbd.log.note import DATED, PLAIN, NoteSignature, dated, note_key_id, parse_note
from mbd.trust.public_keys import ED25519, is_signature, key_id, public_pem, raw_ed25519
from mbd.trust.trust_file import Trust, TrustedKey, refusal, signs

if TYPE_CHECKING:
    from securesystemslib.signer import Signer

_LATEST = 253402300799  # the last second that a datetime can hold


@dataclass(frozen=True)
class Checkpoint:
    """A verified head of the log."""

    origin: str
    size: int
    root: bytes
    time: datetime
    key: TrustedKey
    """who signed it"""
    text: str
    """the whole note"""


def verify_checkpoint(note: str, trust: Trust) -> Checkpoint:
    """Return what a checkpoint says; VerificationError unless a trusted key of the log has signed it."""
    try:
        text, signatures = parse_note(note)
        origin, size, root = _parse_text(text)
    except ValueError as error:
        raise _refused(f"it is not written as a checkpoint ({error})") from error
    if origin != trust.log_origin:
        raise _refused(f"it is of the log {origin}, and {trust.log_origin} is trusted")
    named = {one.key_id: one.value for one in signatures if one.name == origin}
    reason = "no trusted key of the log has signed it"
    for key in trust.keys_for("log"):
        time = _signed_at(text, origin, named, key)
        if time is None:
            continue
        reason = _key_refused(key, time) or ""
        if not reason:
            return Checkpoint(origin, size, root, time, key, note)
    raise _refused(reason)


def sign_checkpoint(size: int, root: bytes, time: datetime, signer: "Signer", trust: Trust) -> str:
    """Return the note of a new head."""
    origin = trust.log_origin
    public = raw_ed25519(public_pem(signer))
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    seconds = int(time.timestamp())
    plain = bytes.fromhex(signer.sign(text.encode()).signature)
    with_date = seconds.to_bytes(8) + bytes.fromhex(signer.sign(dated(text, seconds)).signature)
    lines = [(PLAIN, plain), (DATED, with_date)]
    return f"{text}\n" + "".join(
        NoteSignature(origin, note_key_id(origin, kind, public), value).line for kind, value in lines
    )


def check_log_signer(signer: "Signer", trust: Trust, time: datetime) -> None:
    """Refuse a signer whose checkpoints would not be trusted."""
    if signer.public_key.scheme != ED25519:
        raise UsageError(
            "a log's checkpoints are signed with Ed25519",
            key="certificate.log_signer",
            value=signer.public_key.scheme,
            hint="`mbd keys new` makes such a key",
        )
    identity = key_id(public_pem(signer))
    if not any(key.id == identity and signs(key, time) for key in trust.keys_for("log")):
        raise UsageError(
            "the trust file does not trust this key to sign the log now",
            key="certificate.log_signer",
            value=identity[:12],
            hint="`mbd keys list` shows who is trusted; `mbd keys rotate log` makes a new key of the log",
        )


def _parse_text(text: str) -> tuple[str, int, bytes]:
    lines = text[:-1].split("\n")
    if len(lines) != 3:
        raise ValueError("three lines are expected: origin, size, root")
    origin, digits, encoded = lines
    if not digits.isascii() or not digits.isdigit() or str(size := int(digits)) != digits or size >= 2**53:
        raise ValueError("the size is not a plain number")
    root = base64.b64decode(encoded, validate=True)
    if len(root) != HASH_SIZE or base64.b64encode(root).decode() != encoded:
        raise ValueError("the root is not a SHA-256")
    return origin, size, root


def _signed_at(text: str, origin: str, named: dict[bytes, bytes], trusted: TrustedKey) -> datetime | None:
    """Return when this key signed; None if it did not; VerificationError if one of its signatures is wrong."""
    public = raw_ed25519(trusted.public)
    plain, with_date = (named.get(note_key_id(origin, kind, public)) for kind in (PLAIN, DATED))
    if plain is None and with_date is None:
        return None
    if plain is None or with_date is None:
        raise _refused("one of the log's two signatures is missing")
    signed = partial(is_signature, trusted.public, trusted.scheme)
    seconds = int.from_bytes(with_date[:8])
    good = signed(plain, text.encode()) and signed(with_date[8:], dated(text, seconds))
    if not good or seconds > _LATEST:
        raise _refused("the log's signature is wrong")
    return datetime.fromtimestamp(seconds, UTC)


def _key_refused(key: TrustedKey, time: datetime) -> str | None:
    if key.revoked is not None:  # its holder can write any time and any tree
        return f"the log's key is revoked ({key.revoked.reason})"
    return refusal(key, time, None)


def _refused(why: str) -> VerificationError:
    return VerificationError(
        f"the log's checkpoint cannot be trusted: {why}",
        hint="check that this is the trust file meant for this log; `mbd log check` checks the whole log",
    )

"""Checkpoints: the signed head of the log (C2SP tlog-checkpoint), and the proof that a leaf is below one of them.

    ORIGIN                     whose log it is
    SIZE                       number of leaves
    base64(ROOT)               Merkle tree hash of all of them

    — NAME base64(key id ‖ signature)          key id = SHA-256(NAME ‖ 0x0A ‖ kind ‖ public key)[:4]

It is a signed note (C2SP signed-note): a text, an empty line, and a line for every signature. The log's key signs
twice, with Ed25519: over the text (0x01), as every reader of such logs expects, and over a time and the text (0x04,
C2SP tlog-cosignature), which is how a checkpoint gets its date. A bundle carries an :class:`Inclusion`, checked
offline, with nothing but the trust file.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from pydantic import Field

from mbd.errors import VerificationError
from mbd.log.merkle import HASH_SIZE, leaf_hash, root_by_inclusion
from mbd.records import Digest, Record
from mbd.trust.public_keys import is_signature, raw_ed25519
from mbd.trust.trust_file import Logged, Trust, TrustedKey, explain_refusal

PLAIN, DATED = 0x01, 0x04
_LATEST = 253402300799  # the last second that a datetime can hold
_DASH = "— "
_MOST_SIGNATURES = 32
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


@dataclass(frozen=True)
class NoteSignature:
    """One signature line."""

    name: str
    key_id: bytes
    value: bytes

    @property
    def line(self) -> str:
        """The line, with its end."""
        return f"{_DASH}{self.name} {base64.b64encode(self.key_id + self.value).decode()}\n"


def note_key_id(name: str, kind: int, public: bytes) -> bytes:
    """Return the four bytes by which a note knows a key of a name for one kind of signature."""
    return hashlib.sha256(name.encode() + b"\n" + bytes([kind]) + public).digest()[:4]


def verifier_key(name: str, public: bytes, kind: int = PLAIN) -> str:
    """Return a public key as other tools for such logs take it: NAME+ID+base64(kind ‖ key)."""
    return f"{name}+{note_key_id(name, kind, public).hex()}+{base64.b64encode(bytes([kind]) + public).decode()}"


def dated(text: str, seconds: int) -> bytes:
    """Return what a dated signature is over."""
    return f"cosignature/v1\ntime {seconds}\n{text}".encode()


def parse_note(note: str) -> tuple[str, list[NoteSignature]]:
    """Return text and signatures of a note; ValueError if it is not a note in canonical form."""
    text, gap, lines = note.rpartition("\n\n")
    if not gap or _CONTROL.search(note):
        raise ValueError("a text, an empty line and signatures are expected")
    if not lines.endswith("\n"):
        raise ValueError("the last line is cut off")
    signatures = [_parse_line(line) for line in lines[:-1].split("\n")]
    if len(signatures) > _MOST_SIGNATURES:
        raise ValueError(f"more than {_MOST_SIGNATURES} signatures")
    if len({(signature.name, signature.key_id) for signature in signatures}) != len(signatures):
        raise ValueError("one key has signed twice")
    return text + "\n", signatures


def _parse_line(line: str) -> NoteSignature:
    name, _, value = line.removeprefix(_DASH).partition(" ")
    try:
        data = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("a signature is not base64") from error
    signature = NoteSignature(name, data[:4], data[4:])
    if not name or not signature.value or signature.line != line + "\n":
        raise ValueError("a signature line is malformed")
    return signature


class UnknownLogKeyError(VerificationError):
    """A checkpoint is of another log, or no key of the log that the trust file trusts has signed it."""


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
        raise _refused(f"it is of the log {origin}, and {trust.log_origin} is trusted", UnknownLogKeyError)
    named = {signature.key_id: signature.value for signature in signatures if signature.name == origin}
    reason = "no trusted key of the log has signed it"
    for key in trust.keys_for("log"):
        time = _signed_at(text, origin, named, key)
        if time is None:
            continue
        # The holder of a revoked key can write any time and any tree.
        revoked = f"the log's key is revoked ({key.revoked.reason})" if key.revoked else None
        reason = revoked or explain_refusal(key, time, None) or ""
        if not reason:
            return Checkpoint(origin, size, root, time, key, note)
    raise _refused(reason, UnknownLogKeyError)


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


def _refused(why: str, kind: type[VerificationError] = VerificationError) -> VerificationError:
    return kind(
        f"the log's checkpoint cannot be trusted: {why}",
        hint="check that this is the trust file meant for this log; `mbd log check` checks the whole log",
    )


class Inclusion(Record):
    """A leaf's place, and the hashes that lead from it to the root in a signed checkpoint."""

    index: Annotated[int, Field(ge=0, lt=2**53)]
    tree_size: Annotated[int, Field(ge=1, lt=2**53)]
    hashes: tuple[Digest, ...]
    """from the leaf's sibling up (RFC 9162, 2.1.3)"""
    checkpoint: str
    """the first checkpoint that has the leaf, as it was signed"""

    def verify(self, leaf: bytes, trust: Trust) -> Logged:
        """Return where and when `leaf` (:func:`leaf_of`) was logged; VerificationError if this does not prove it."""
        checkpoint = verify_checkpoint(self.checkpoint, trust)
        hashes = list(map(bytes.fromhex, self.hashes))
        root = root_by_inclusion(leaf_hash(leaf), self.index, self.tree_size, hashes)
        if checkpoint.size != self.tree_size or root != checkpoint.root:
            raise VerificationError(
                "the certificate is not in the log: the proof does not lead to the root of the checkpoint",
                hint="get the bundle again from where it was published",
            )
        return Logged(self.index, checkpoint.time)


def leaf_of(envelope: bytes) -> bytes:
    """Return what the log keeps of a certificate: the SHA-256 of its envelope, 32 bytes."""
    return hashlib.sha256(envelope).digest()

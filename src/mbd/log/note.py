"""Signed notes (C2SP signed-note): a text, an empty line, and a line for every signature.

    — NAME base64(key id ‖ signature)          key id = SHA-256(NAME ‖ 0x0A ‖ kind ‖ public key)[:4]

Two kinds of signature are used, both Ed25519: 0x01 over the text, and 0x04 (C2SP tlog-cosignature) over a time and
the text, which is how a note gets a date.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

PLAIN, DATED = 0x01, 0x04
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
    if len({(one.name, one.key_id) for one in signatures}) != len(signatures):
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

"""How inputs are changed: bytes and tokens anywhere, or inside what the format wraps, so that checksums stay right."""

import io
import json
import struct
import zipfile
from collections.abc import Callable

import numpy as np

from tests.certificate.tampering import BYTES, change_field

Mutator = Callable[[bytes, np.random.Generator], bytes]
TOKENS = (
    *(b"1e999", b"-1e999", b"NaN", b"1e400", b"-1", b"0", b"9" * 5000, str(2**63).encode(), str(2**70).encode()),
    *(
        b'"\\ud800"',
        b"\\ud800",
        b"\xff\xfe",
        b"\0",
        b"\xed\xa0\x80",
        "é".encode(),
        b"\n",
        b"\r",
        b'"',
        b"'",
        b",",
        b"%2E",
    ),
    *(b"[" * 5000, b'{"a":' * 5000, b"(" * 500, b"null", b"true", b"{}", b"[]"),
    *(b"../../x", b"/etc/passwd", b"_rows", b"a+b", b"&a [*a, *a]", b"!!python/object:os.system x", b"<<: *x"),
    *(b"(1099511627776,)", b"(0, 1099511627776)", b"'|O'", b"V0"),
    *(struct.pack("<I", 2**32 - 1), struct.pack("<Q", 2**63), b"\x80\x04", b"cos\nsystem\n"),
)


def bytes_or_tokens(content: bytes, draw: np.random.Generator) -> bytes:
    """Change bytes, or put a token somewhere, up to four times."""
    for _ in range(int(draw.integers(1, 5))):
        if not content or draw.random() < 0.4:
            token, at = TOKENS[int(draw.integers(len(TOKENS)))], int(draw.integers(len(content) + 1))
            content = content[:at] + token + content[at + int(draw.integers(0, 1 + min(len(token), 20))) :]
        else:
            content = BYTES[int(draw.integers(len(BYTES)))](content, draw)
    return content


def in_json(content: bytes, draw: np.random.Generator) -> bytes:
    """Change fields of JSON, or its text."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return bytes_or_tokens(content, draw)
    if draw.random() < 0.5:
        return bytes_or_tokens(content, draw)
    for _ in range(int(draw.integers(1, 4))):
        if isinstance(value, dict | list) and value:
            value = change_field(value, draw)
    return json.dumps(value, separators=(",", ":")).encode()


def in_header(content: bytes, draw: np.random.Generator) -> bytes:
    """Change the header of a safetensors file, with its length set right; or any byte."""
    if draw.random() < 0.3:
        return bytes_or_tokens(content, draw)
    length = int.from_bytes(content[:8], "little")
    header = in_json(content[8 : 8 + length], draw)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]


def in_archive(content: bytes, draw: np.random.Generator) -> bytes:
    """Change names or contents of entries of an archive, with right checksums; or any byte of it."""
    if draw.random() < 0.3:
        return bytes_or_tokens(content, draw)
    try:
        return _changed_entry(content, draw)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):  # an entry that no parser has to read
        return bytes_or_tokens(content, draw)


def _changed_entry(content: bytes, draw: np.random.Generator) -> bytes:
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(changed, "w") as out:
        entries = archive.infolist()
        chosen = int(draw.integers(len(entries)))
        for place, entry in enumerate(entries):
            data, name = archive.read(entry), entry.filename
            if place == chosen and draw.random() < 0.8:
                # Most of what can go wrong is in the header of the array.
                cut = min(128, len(data)) if draw.random() < 0.8 else len(data)
                data = bytes_or_tokens(data[:cut], draw) + data[cut:]
            elif place == chosen:
                name = bytes_or_tokens(name.encode(), draw).decode(errors="replace").replace("\0", "") or "x"
            out.writestr(name[:1000], data, entry.compress_type)
    return changed.getvalue()

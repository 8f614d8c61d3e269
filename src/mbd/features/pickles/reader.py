"""The bytes of a pickle: numbers, lines, and content with a length before it, none of it believed beyond the file."""

import codecs
import mmap
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

BYTE, SHORT, UNSIGNED, SIGNED, LONG = (struct.Struct(f"<{code}") for code in "BHIiQ")

_FLOATS = re.compile(rb"(?:G.{8}){1,1000}+", re.DOTALL)
_FLOAT_SIZE = 9
_CUT_OFF = "it has no STOP opcode"


class DamagedError(Exception):
    """The bytes are not a whole pickle."""


def latin1(data: bytes) -> str:
    """Return text as Python 2 wrote it."""
    return data.decode("latin1")


def utf8(data: bytes) -> str:
    """Return text as Python 3 writes it."""
    return data.decode("utf-8", "surrogatepass")


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _integer_line(line: bytes) -> int:
    return {b"00": False, b"01": True}[line] if line in (b"00", b"01") else int(line.removesuffix(b"L"))


def _quoted(line: bytes) -> str:
    if len(line) < 2 or line[0] != line[-1] or line[:1] not in (b"'", b'"'):
        raise DamagedError("a text without its quotes")
    return latin1(codecs.escape_decode(line[1:-1])[0])


def _unicode_line(line: bytes) -> str:
    return line.decode("raw-unicode-escape")


# By opcode: the layout of a number; what to make of a line; the layout of a length and what to make of the content.
NUMBERS = {b"K": BYTE, b"M": SHORT, b"J": SIGNED}
LINES: dict[bytes, Callable[[bytes], Any]] = {
    b"I": _integer_line,
    b"L": _integer_line,
    b"F": float,
    b"S": _quoted,
    b"V": _unicode_line,
}
COUNTED: dict[bytes, tuple[struct.Struct, Callable[[bytes], Any]]] = {
    b"U": (BYTE, latin1),
    b"T": (SIGNED, latin1),
    b"C": (BYTE, bytes),
    b"B": (UNSIGNED, bytes),
    b"\x8e": (LONG, bytes),
    b"\x96": (LONG, bytearray),
    b"\x8c": (BYTE, utf8),
    b"X": (UNSIGNED, utf8),
    b"\x8d": (LONG, utf8),
    b"\x8a": (BYTE, _integer),
    b"\x8b": (SIGNED, _integer),
}


class Reader:
    """A position in the bytes of a pickle."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.size = len(data)
        self.at = 0

    def number(self, layout: struct.Struct) -> int:
        """Read a number."""
        if self.at + layout.size > self.size:
            self.at = self.size
            raise DamagedError(_CUT_OFF)
        number: int = layout.unpack_from(self.data, self.at)[0]
        self.at += layout.size
        return number

    def line(self) -> bytes:
        """Read up to the end of the line."""
        begin, end = self.at, self.data.find(b"\n", self.at)
        if end < 0:
            raise DamagedError(_CUT_OFF)
        self.at = end + 1
        return self.data[begin:end]

    def span(self, layout: struct.Struct) -> tuple[int, int]:
        """Read a length and step over as many bytes; return where they begin and end."""
        count = self.number(layout)
        left = self.size - self.at
        if not 0 <= count <= left:
            raise DamagedError(f"it announces {count} bytes where {left} are left")
        self.at += count
        return self.at - count, self.at

    def floats(self, begin: int) -> list[float]:
        """Read all consecutive floats from the opcode at `begin`; some files hold millions of them."""
        run = _FLOATS.match(self.data, begin)
        if run is None:
            raise DamagedError(_CUT_OFF)
        self.at = run.end()
        count = (self.at - begin) // _FLOAT_SIZE
        numbers: list[float] = np.ndarray(
            (count,), ">f8", buffer=self.data, offset=begin + 1, strides=(_FLOAT_SIZE,)
        ).tolist()
        return numbers

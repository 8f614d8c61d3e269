"""Pickles as data: containers, text, numbers and numpy arrays, read without running anything.

A pickle is a program, and `pickle.load` runs it: it imports what the file names and calls it. An allow-list of names
in `Unpickler.find_class` is not enough for arrays, because the file then sets the state of numpy's own objects, and
numpy trusts it: an array of a million objects filled from a list of two ends the process. So the file is never given
to `pickle`: :class:`Machine` walks through it, the stack machine that a pickle is a program for, without the parts that
reach outside the file, and `values` makes the values. A name becomes one of the builders of `values`, or it is noted
in `refused` and a blank takes its place. The walk goes on after that, so that `refused` holds all that the file asks
for, however the names reach the opcode that uses them.

Memory is bounded by the file. Arrays are read-only, and large ones are views of the file, read from disk when they are
looked at.
"""

import codecs
import mmap
import re
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mbd.errors import DataError
from mbd.features.pickles.values import BLANK, BUILDERS, Named, Unfinished, UnusableError, check_key, takes_content

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


# By opcode: the layout of a number; what to make of a line; the layout of a length and what to make of the content.
NUMBERS = {b"K": BYTE, b"M": SHORT, b"J": SIGNED}
LINES: dict[bytes, Callable[[bytes], Any]] = {
    b"I": _integer_line,
    b"L": _integer_line,
    b"F": float,
    b"S": _quoted,
    b"V": lambda line: line.decode("raw-unicode-escape"),
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


_STOP = ord(".")
_STARTS = b"\x80(]})cNIJKMLFGSTUVX"
_CONSTANTS: dict[bytes, object] = {b"N": None, b"\x88": True, b"\x89": False, b")": ()}
_CONTENT = (bytes, bytearray, latin1)
_VIEWED = 4096
_NAME_SHOWN = 100


class Machine:
    """The stack, the marks and the memo of one pickle, and a step for each opcode."""

    def __init__(self, data: mmap.mmap) -> None:
        self.refused: dict[str, None] = {}
        """what the file asks for beyond data, in its order"""
        self.begun = 0
        """where the opcode at work begins"""
        self._read = Reader(data)
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        # Names and unfinished objects that are about. Data has used them all up in the end.
        self._scaffolding = 0

    def run(self) -> object:
        """Take every step up to the end mark and return the value that is left."""
        read, data, steps = self._read, self._read.data, self._steps()
        if data[0] not in _STARTS:
            raise DamagedError("a pickle does not begin like this")
        try:
            while (code := data[read.at]) != _STOP:
                self.begun = read.at
                read.at += 1
                steps[code]()
            (value,) = self._stack
        except (LookupError, ValueError, TypeError) as error:
            ended = read.at >= read.size
            raise DamagedError("it has no STOP opcode" if ended else "its opcodes do not fit together") from error
        if self._scaffolding:
            self._refuse("a class, or an array without content, as a value")
        return value

    def _steps(self) -> dict[int, Callable[[], object]]:
        """Return what to do for each opcode (they are described in the standard library's pickletools)."""
        steps: dict[bytes, Callable[[], object]] = {
            b"\x80": partial(self._read.number, BYTE),
            b"\x95": partial(self._read.number, LONG),
            b"G": lambda: self._stack.extend(self._read.floats(self.begun)),
            b"(": self._mark,
            b"0": lambda: self._forget(self._take(1) if self._stack else self._above_mark()),
            b"1": lambda: self._forget(self._above_mark()),
            b"]": lambda: self._push([]),
            b"}": lambda: self._push({}),
            b"\x8f": lambda: self._push(set()),
            b"l": lambda: self._push(self._above_mark()),
            b"t": lambda: self._push(tuple(self._above_mark())),
            b"\x91": lambda: self._push(frozenset(self._keys(self._above_mark()))),
            b"d": lambda: self._push(self._pairs(self._above_mark())),
            b"\x85": lambda: self._push(tuple(self._take(1))),
            b"\x86": lambda: self._push(tuple(self._take(2))),
            b"\x87": lambda: self._push(tuple(self._take(3))),
            b"a": lambda: self._fill(list, self._take(1)),
            b"e": lambda: self._fill(list, self._above_mark()),
            b"s": lambda: self._fill(dict, self._take(2)),
            b"u": lambda: self._fill(dict, self._above_mark()),
            b"\x90": lambda: self._fill(set, self._above_mark()),
            b"\x94": lambda: self._put(len(self._memo)),
            b"p": lambda: self._put(int(self._read.line())),
            b"q": lambda: self._put(self._read.number(BYTE)),
            b"r": lambda: self._put(self._read.number(UNSIGNED)),
            b"g": lambda: self._get(int(self._read.line())),
            b"h": lambda: self._get(self._read.number(BYTE)),
            b"j": lambda: self._get(self._read.number(UNSIGNED)),
            b"c": lambda: self._name(utf8(self._read.line()), utf8(self._read.line())),
            b"\x93": lambda: self._name(*self._take(2)),
            b"R": self._reduce,
            b"b": self._build,
            **{code: partial(self._push, value) for code, value in _CONSTANTS.items()},
            **{code: partial(self._push_read, partial(self._read.number, form)) for code, form in NUMBERS.items()},
            **{code: partial(self._push_read, self._read.line, make) for code, make in LINES.items()},
            **{code: partial(self._counted, *how) for code, how in COUNTED.items()},
            **self._refused_steps(),
        }
        return {code[0]: step for code, step in steps.items()}

    def _refused_steps(self) -> dict[bytes, Callable[[], object]]:
        outside = "an object from outside the file"
        return {
            b"P": lambda: self._blank(f"{outside} (PERSID)", self._read.line()),
            b"Q": lambda: self._blank(f"{outside} (BINPERSID)", self._take(1)),
            b"\x82": lambda: self._blank(f"the extension code {self._read.number(BYTE)}"),
            b"\x83": lambda: self._blank(f"the extension code {self._read.number(SHORT)}"),
            b"\x84": lambda: self._blank(f"the extension code {self._read.number(SIGNED)}"),
            b"\x97": lambda: self._blank("a buffer from outside the file"),
            b"\x98": lambda: self._blank("a buffer from outside the file", self._take(1)),
            b"2": lambda: self._blank("the opcode DUP"),
            b"i": lambda: self._blank(_dotted(utf8(self._read.line()), utf8(self._read.line())), self._above_mark()),
            b"o": lambda: self._instance(self._above_mark()[0]),
            b"\x81": lambda: self._instance(self._take(2)[0]),
            b"\x92": lambda: self._instance(self._take(3)[0]),
        }

    # Stack

    def _counted(self, layout: struct.Struct, make: Callable[[bytes], Any]) -> None:
        begin, end = self._read.span(layout)
        # What is being filled is below the mark. If that is an array, its content is not copied.
        below = self._marks[-1][-1:] if self._marks else ()
        if end - begin >= _VIEWED and make in _CONTENT and any(map(takes_content, below)):
            self._stack.append(memoryview(self._read.data)[begin:end])
        else:
            self._stack.append(make(self._read.data[begin:end]))

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _push_read(self, read: Callable[[], Any], make: Callable[[Any], Any] = lambda value: value) -> None:
        self._stack.append(make(read()))

    def _take(self, count: int) -> list[Any]:
        taken = self._stack[-count:]
        if len(taken) < count:
            raise IndexError
        del self._stack[-count:]
        return taken

    def _mark(self) -> None:
        self._marks.append(self._stack)
        self._stack = []

    def _above_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._marks.pop()
        return items

    def _forget(self, items: list[Any]) -> None:
        self._scaffolding -= sum(type(item) in (Named, Unfinished) for item in items)

    # Containers

    def _keys(self, keys: list[Any]) -> list[Any]:
        try:
            return [check_key(key) for key in keys]
        except UnusableError as error:
            self._refuse(str(error))
            return []

    def _pairs(self, items: list[Any]) -> dict[Any, Any]:
        keys = self._keys(items[::2])
        return dict(zip(keys, items[1::2], strict=True)) if keys else {}

    def _fill(self, kind: type[list[Any] | dict[Any, Any] | set[Any]], items: list[Any]) -> None:
        target = self._stack[-1]
        if target is BLANK:
            return
        if not isinstance(target, kind):
            raise TypeError
        if isinstance(target, list):
            target += items
        else:
            target.update(self._pairs(items) if isinstance(target, dict) else self._keys(items))

    # Memo

    def _put(self, key: int) -> None:
        if not 0 <= key <= self._read.size:
            raise DamagedError(f"it remembers a value as number {key} in a file of {self._read.size} bytes")
        self._memo[key] = value = self._stack[-1]
        if type(value) is Unfinished:
            value.memo_keys.append(key)

    def _get(self, key: int) -> None:
        value = self._memo[key]
        if type(value) is Named:
            self._scaffolding += 1
        elif type(value) is Unfinished:
            self._refuse("an array that holds itself")
            value = BLANK
        self._stack.append(value)

    # Names and what is made of them

    def _name(self, module: object, name: object) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            self._blank("a name that it computes")
        elif (module, name) in BUILDERS:
            self._scaffolding += 1
            self._stack.append(BUILDERS[module, name])
        else:
            self._blank(_dotted(module, name))

    def _reduce(self) -> None:
        maker, arguments = self._take(2)
        if type(maker) is Named and type(arguments) is tuple:
            self._forget([maker, *arguments])
            value = self._attempt(maker.name, maker.build, arguments)
        elif maker is BLANK or arguments is BLANK:
            value = BLANK
        else:
            raise TypeError
        self._scaffolding += type(value) is Unfinished
        self._stack.append(value)

    def _build(self) -> None:
        (state,) = self._take(1)
        target = self._stack[-1]
        if type(target) is Unfinished:
            self._scaffolding -= 1
            self._stack[-1] = value = self._attempt(target.name, target.finish, state)
            self._memo.update(dict.fromkeys(target.memo_keys, value))
        elif target is not BLANK:
            self._refuse(f"a state for a {type(target).__name__}")

    def _attempt(self, name: str, make: Callable[[Any], Any], given: object) -> object:
        """Return what `make` makes of what the file gives, or a blank."""
        try:
            return make(given)
        except (UnusableError, LookupError, ValueError, TypeError) as error:
            if not (type(given) is tuple and any(part is BLANK for part in given)):
                reason = str(error) if isinstance(error, UnusableError) else "used as no data needs it"
                self._refuse(f"{name} ({reason})")
            return BLANK

    def _instance(self, kind: object) -> None:
        if kind is BLANK:
            self._stack.append(BLANK)
            return
        self._forget([kind])
        self._blank(f"{kind.name if isinstance(kind, Named) else 'something'} (as a class to make objects of)")

    def _blank(self, what: str, _consumed: object = None) -> None:
        self._refuse(what)
        self._stack.append(BLANK)

    def _refuse(self, what: str) -> None:
        self.refused[what] = None


def _dotted(module: str, name: str) -> str:
    """Return a name as it may be printed, whatever is in it."""
    dotted = f"{module}.{name}"
    printable = "".join(c if c.isprintable() else c.encode("unicode-escape").decode() for c in dotted[:_NAME_SHOWN])
    return printable + "…" * (len(dotted) > _NAME_SHOWN)


_SHOWN = 20
_PROTOCOL, _FRAME = 2, 9  # lengths of the opcodes that may come first, with their arguments
_HINT = (
    "nothing in it was run: only containers, text, numbers and plain numpy arrays are read. If you trust its maker, "
    "load it where it was made and save it as such (or with numpy.savez, for features.source.kind=npz)"
)


def load_pickle(path: Path) -> object:
    """Return what the pickle at `path` holds; raise a DataError if it is damaged or asks for more than data."""
    machine = Machine(_map(path))
    try:
        value = machine.run()
    except DamagedError as error:
        if not machine.refused:
            raise DataError(
                f"this is not a pickle, or it is cut off or damaged at byte {machine.begun}: {error}",
                file=path,
                hint="make or fetch the file again",
            ) from error
    if machine.refused:
        shown = ", ".join(list(machine.refused)[:_SHOWN])
        more = f" and {len(machine.refused) - _SHOWN} more" if len(machine.refused) > _SHOWN else ""
        raise DataError(f"this pickle is more than data: it asks for {shown}{more}", file=path, hint=_HINT)
    return value


def outermost(path: Path) -> Literal["dict", "sequence"] | None:
    """Return what the outermost value of a pickle is, from its first opcode; None: something else, or not readable."""
    try:
        with path.open("rb") as stream:
            start = stream.read(_PROTOCOL + _FRAME + 2)
    except OSError:
        return None
    if start[:1] == b"\x80":
        start = start[_PROTOCOL:]
    if start[:1] == b"\x95":
        start = start[_FRAME:]
    if start[:1] == b"}" or start[:2] == b"(d":
        return "dict"
    return "sequence" if start[:1] in (b"(", b"]") else None


def described(value: object) -> str:
    """Return what a value of a pickle is, in an error."""
    return f"{value.shape} {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__


def _map(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as stream:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise DataError("the file is missing", file=path, key="features.source.path") from error
    except ValueError as error:  # there is nothing to map
        raise DataError("the file is empty", file=path, hint="make or fetch it again") from error
    except OSError as error:
        raise DataError(f"the file cannot be read: {error.strerror}", file=path) from error

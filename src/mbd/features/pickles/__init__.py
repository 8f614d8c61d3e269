"""Pickles as data: containers, text, numbers and numpy arrays, read without running anything.

A pickle is a program, and `pickle.load` runs it: it imports what the file names and calls it. An allow-list of names
in `Unpickler.find_class` is not enough for arrays, because the file then sets the state of numpy's own objects, and
numpy trusts it: an array of a million objects filled from a list of two ends the process. So the file is never given
to `pickle`: :class:`Machine` walks through it, the stack machine that a pickle is a program for, without the parts that
reach outside the file. The standard library's `pickletools`, which runs nothing either, reads the arguments of opcodes,
and `values` makes the values. A name becomes one of the builders of `values`, or it is noted in `refused` and a blank
takes its place. The walk goes on after that, so that `refused` holds all that the file asks for, however the names
reach the opcode that uses them.

Memory is bounded by the file. Arrays are read-only, and large ones are views of the file, read from disk when they are
looked at.
"""

import codecs
import mmap
import re
from collections.abc import Callable
from pathlib import Path
from pickletools import OpcodeInfo, opcodes, read_int4, read_stringnl, read_uint4, read_uint8
from typing import IO, Any, Literal

import numpy as np

from mbd.errors import DataError
from mbd.features.pickles.values import BLANK, BUILDERS, Named, Unfinished, UnusableError, check_key, takes_content

_FLOATS = re.compile(rb"(?:G.{8}){1,1000}+", re.DOTALL)
_FLOAT_SIZE = 9


class DamagedError(Exception):
    """The bytes are not a whole pickle."""


def _read_quoted(data: IO[bytes]) -> str:
    """Read a text as Python 2 wrote it, whatever is in it."""
    return codecs.escape_decode(read_stringnl(data, decode=False))[0].decode("latin1")


def _read_name(data: IO[bytes]) -> tuple[str, ...]:
    lines: Any = (read_stringnl(data, decode=False, stripquotes=False) for _ in ("module", "name"))
    return tuple(line.decode("utf-8", "surrogatepass") for line in lines)


def _read_floats(data: Any) -> list[float]:  # noqa: ANN401 -- a mapped file
    """Read all consecutive floats, from the opcode before on; some files hold millions of them."""
    begin = data.tell() - 1
    run = _FLOATS.match(data, begin)
    if run is None:
        raise ValueError("a number is cut off")
    data.seek(run.end())
    count = (run.end() - begin) // _FLOAT_SIZE
    numbers: list[float] = np.ndarray((count,), ">f8", data, offset=begin + 1, strides=(_FLOAT_SIZE,)).tolist()
    return numbers


_OPCODES = {ord(opcode.code): opcode for opcode in opcodes}
_READ: dict[str, Callable[[Any], Any]] = {
    "STRING": _read_quoted,
    "GLOBAL": _read_name,
    "INST": _read_name,
    "BINFLOAT": _read_floats,
}
"""arguments that are read in another way than by pickletools"""
_COUNT = {"BINSTRING": read_int4, "BINBYTES": read_uint4, "BINBYTES8": read_uint8, "BYTEARRAY8": read_uint8}
"""what may be the content of a large array, by how its length is read"""
_STARTS = b"\x80(]})cNIJKMLFGSTUVX"
_VIEWED = 4096
_NAME_SHOWN = 100
_REASON_SHOWN = 200


class Machine:
    """The stack, the marks and the memo of one pickle, and a step for each opcode."""

    def __init__(self, data: mmap.mmap) -> None:
        self.refused: dict[str, None] = {}
        """what the file asks for beyond data, in its order"""
        self.begun = 0
        """where the opcode at work begins"""
        self._data: Any = data  # read as a file, which pickletools asks for
        self._size = len(data)
        self._stack: list[Any] = []
        self._marks: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        # Names and unfinished objects that are about. Data has used them all up in the end.
        self._scaffolding = 0

    def run(self) -> object:
        """Take every step up to the end mark and return the value that is left."""
        steps = self._steps()
        if self._data[0] not in _STARTS:
            raise DamagedError("a pickle does not begin like this")
        try:
            while (opcode := self._opcode()).name != "STOP":
                steps[opcode.name](self._argument(opcode))
            (value,) = self._stack
        except (LookupError, ValueError, TypeError) as error:
            raise DamagedError("its opcodes do not fit together") from error
        if self._scaffolding:
            self._refuse("a class, or an array without content, as a value")
        return value

    def _opcode(self) -> OpcodeInfo:
        self.begun = self._data.tell()
        if self.begun == self._size:
            raise DamagedError("it has no STOP opcode")
        return _OPCODES[self._data.read_byte()]

    def _argument(self, opcode: OpcodeInfo) -> Any:  # noqa: ANN401 -- numbers, texts and bytes
        if opcode.arg is None:
            return None
        try:
            # What is being filled is below the mark. If that is an array, its content is not copied.
            if opcode.name in _COUNT and self._marks and any(map(takes_content, self._marks[-1][-1:])):
                return self._content(opcode)
            return _READ.get(opcode.name, opcode.arg.reader)(self._data)
        except ValueError as error:
            raise DamagedError(str(error)[:_REASON_SHOWN]) from error

    def _content(self, opcode: OpcodeInfo) -> Any:  # noqa: ANN401 -- text, bytes or a view of the file
        begin, count = self._data.tell(), _COUNT[opcode.name](self._data)
        at = self._data.tell()
        if not _VIEWED <= count <= self._size - at:
            self._data.seek(begin)
            return opcode.arg and opcode.arg.reader(self._data)
        self._data.seek(count, 1)
        return memoryview(self._data)[at : at + count]

    def _steps(self) -> dict[str, Callable[[Any], object]]:
        """Return what to do with the argument of each opcode (they are described in pickletools)."""
        outside = "an object from outside the file"
        return {
            **{opcode.name: self._push for opcode in opcodes if opcode.arg},
            **dict.fromkeys(("PROTO", "FRAME"), lambda _: None),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self._put),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), self._get),
            **dict.fromkeys(("EXT1", "EXT2", "EXT4"), lambda code: self._blank(f"the extension code {code}")),
            "BINFLOAT": self._push_all,
            "NONE": self._push,
            "NEWTRUE": lambda _: self._push(True),
            "NEWFALSE": lambda _: self._push(False),
            "MARK": self._mark,
            "POP": lambda _: self._forget(self._take(1) if self._stack else self._above_mark()),
            "POP_MARK": lambda _: self._forget(self._above_mark()),
            "EMPTY_TUPLE": lambda _: self._push(()),
            "EMPTY_LIST": lambda _: self._push([]),
            "EMPTY_DICT": lambda _: self._push({}),
            "EMPTY_SET": lambda _: self._push(set()),
            "LIST": lambda _: self._push(self._above_mark()),
            "TUPLE": lambda _: self._push(tuple(self._above_mark())),
            "TUPLE1": lambda _: self._push(tuple(self._take(1))),
            "TUPLE2": lambda _: self._push(tuple(self._take(2))),
            "TUPLE3": lambda _: self._push(tuple(self._take(3))),
            "FROZENSET": lambda _: self._push(frozenset(self._keys(self._above_mark()))),
            "DICT": lambda _: self._push(self._pairs(self._above_mark())),
            "APPEND": lambda _: self._fill(list, self._take(1)),
            "APPENDS": lambda _: self._fill(list, self._above_mark()),
            "SETITEM": lambda _: self._fill(dict, self._take(2)),
            "SETITEMS": lambda _: self._fill(dict, self._above_mark()),
            "ADDITEMS": lambda _: self._fill(set, self._above_mark()),
            "MEMOIZE": lambda _: self._put(len(self._memo)),
            "GLOBAL": lambda name: self._name(*name),
            "STACK_GLOBAL": lambda _: self._name(*self._take(2)),
            "REDUCE": self._reduce,
            "BUILD": self._build,
            "PERSID": lambda _: self._blank(f"{outside} (PERSID)"),
            "BINPERSID": lambda _: self._blank(f"{outside} (BINPERSID)", self._take(1)),
            "NEXT_BUFFER": lambda _: self._blank("a buffer from outside the file"),
            "READONLY_BUFFER": lambda _: self._blank("a buffer from outside the file", self._take(1)),
            "DUP": lambda _: self._blank("the opcode DUP"),
            "INST": lambda name: self._blank(_dotted(*name), self._above_mark()),
            "OBJ": lambda _: self._instance(self._above_mark()[0]),
            "NEWOBJ": lambda _: self._instance(self._take(2)[0]),
            "NEWOBJ_EX": lambda _: self._instance(self._take(3)[0]),
        }

    # Stack

    def _push(self, value: object) -> None:
        self._stack.append(value)

    def _push_all(self, values: list[float]) -> None:
        self._stack += values

    def _take(self, count: int) -> list[Any]:
        taken = self._stack[-count:]
        if len(taken) < count:
            raise IndexError
        del self._stack[-count:]
        return taken

    def _mark(self, _: None) -> None:
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
        if not 0 <= key <= self._size:
            raise DamagedError(f"it remembers a value as number {key} in a file of {self._size} bytes")
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

    def _reduce(self, _: None) -> None:
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

    def _build(self, _: None) -> None:
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

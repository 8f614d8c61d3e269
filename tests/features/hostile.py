"""Pickles that ask for more than data. `live` ones run their payload when `pickle.loads` gets them."""

import pickle as p
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Hostile:
    """A file, what the refusal has to say, and whether its payload really works."""

    name: str
    make: Callable[[Path], bytes]
    says: tuple[str, ...]
    live: bool = False


class Sprung:
    """An object whose state springs the trap."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __getstate__(self) -> dict[str, str]:
        return {"sentinel": str(self.sentinel)}

    def __setstate__(self, state: dict[str, str]) -> None:
        Path(state["sentinel"]).touch()


class Reduced:
    """An object that is made by calling something."""

    def __init__(self, *how: object) -> None:
        self.how = how

    def __reduce__(self) -> tuple[object, ...]:
        return self.how


class Plain:
    """An object of a class of its own."""


def text(value: str) -> bytes:
    data = value.encode()
    return p.BINUNICODE + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    return p.LONG + str(value).encode() + b"L\n"


def name(module: str, attribute: str) -> bytes:
    return p.GLOBAL + f"{module}\n{attribute}\n".encode()


def stacked(module: str, attribute: str) -> bytes:
    return text(module) + text(attribute) + p.STACK_GLOBAL


def pair(*parts: bytes) -> bytes:
    return p.MARK + b"".join(parts) + p.TUPLE


def call(what: bytes, *arguments: bytes) -> bytes:
    return what + pair(*arguments) + p.REDUCE


def whole(body: bytes) -> bytes:
    return p.PROTO + b"\x04" + body + p.STOP


def touch(sentinel: Path) -> bytes:
    return text(f"touch {sentinel}")


def python(sentinel: Path) -> bytes:
    return text(f"__import__('pathlib').Path({str(sentinel)!r}).touch()")


def dtype(code: str, order: str = "<", size: int = -1, fields: bytes = p.NONE * 3) -> bytes:
    made = call(name("numpy", "dtype"), text(code), p.NEWFALSE, p.NEWTRUE)
    return made + pair(number(3), text(order), fields, number(size), number(-1), number(0)) + p.BUILD


def array(shape: bytes, kind: bytes, content: bytes) -> bytes:
    empty = call(name("numpy.core.multiarray", "_reconstruct"), name("numpy", "ndarray"), pair(number(0)), text("b"))
    return empty + pair(number(1), shape, kind, p.NEWFALSE, content) + p.BUILD


def fixed(title: str, body: bytes, *says: str) -> Hostile:
    return Hostile(title, lambda _: whole(body), says)


def calling(title: str, function: bytes, *says: str, argument: Callable[[Path], bytes] = touch) -> Hostile:
    return Hostile(title, lambda sentinel: whole(call(function, argument(sentinel))), says, live=True)


def corpus() -> Iterator[Hostile]:
    """Yield every hostile file."""
    yield from _that_run_something()
    yield from _that_name_something()
    yield from _that_make_objects()
    yield from _that_reach_outside()
    yield from _that_misuse_what_is_allowed()
    yield from _that_ask_for_memory()


def _that_run_something() -> Iterator[Hostile]:
    system, said = name("os", "system"), "it asks for os.system"
    yield calling("global", system, said)
    yield calling("stack-global", stacked("os", "system"), said)
    forgotten = text("os") + p.BINPUT + b"\0" + p.POP + text("system") + p.BINPUT + b"\1" + p.POP
    yield calling("names-from-the-memo", forgotten + p.BINGET + b"\0" + p.BINGET + b"\1" + p.STACK_GLOBAL, said)
    yield calling("function-from-the-memo", system + p.BINPUT + b"\7" + p.POP + p.BINGET + b"\7", said)
    yield calling("dotted", stacked("pathlib", "os.system"), "it asks for pathlib.os.system")
    yield calling("eval", name("builtins", "eval"), "it asks for builtins.eval", argument=python)
    yield calling("exec", name("builtins", "exec"), "it asks for builtins.exec", argument=python)
    module = call(name("builtins", "__import__"), text("os"))
    chain = call(name("builtins", "getattr"), module, text("system"))
    yield calling("reduce-chain", chain, "it asks for builtins.getattr, builtins.__import__")
    yield calling(
        "subprocess",
        name("subprocess", "call"),
        "it asks for subprocess.call",
        argument=lambda sentinel: pair(text("touch"), text(str(sentinel))),
    )
    yield Hostile(
        "two-of-them",
        lambda sentinel: whole(pair(call(system, touch(sentinel)), call(name("builtins", "eval"), python(sentinel)))),
        ("it asks for os.system, builtins.eval",),
        live=True,
    )
    yield Hostile(
        "protocol-0",
        lambda sentinel: b"cos\nsystem\n(S'touch " + str(sentinel).encode() + b"'\ntR.",
        (said,),
        live=True,
    )
    yield Hostile("then-cut-off", lambda sentinel: whole(call(system, touch(sentinel)))[:-1], (said,))


def _that_name_something() -> Iterator[Hostile]:
    for dotted in (
        *("numpy load", "numpy fromfile", "numpy memmap", "numpy zeros", "numpy.core.multiarray fromfile"),
        *("numpy core.multiarray.os.system", "numpy.f2py.crackfortran getlincoef"),
        *("numpy.testing._private.utils runstring", "torch._utils _rebuild_tensor_v2", "pandas DataFrame"),
        *("builtins open", "builtins map", "functools partial", "operator attrgetter", "copyreg _reconstructor"),
    ):
        module, attribute = dotted.split()
        says = f"it asks for {module}.{attribute}"
        yield fixed(f"{module}.{attribute}", call(stacked(module, attribute), text("x")), says)
    for protocol in range(p.HIGHEST_PROTOCOL + 1):
        array_of_objects = np.array([np.ones(3), Reduced(eval, ("1 + 1",))], dtype=object)
        data = p.dumps({"train": [1, {"audio": array_of_objects}]}, protocol)
        yield Hostile(f"in-an-array-in-a-dict-{protocol}", lambda _, data=data: data, (".eval",))  # type: ignore[misc]
    yield fixed("terminal-codes", stacked("os\x1b[2K", "system"), r"it asks for os\x1b[2K.system")
    yield fixed("computed-name", p.NONE + text("system") + p.STACK_GLOBAL, "a name that it computes")


def _that_make_objects() -> Iterator[Hostile]:
    popen, ndarray = name("subprocess", "Popen"), name("numpy", "ndarray")
    own = f"{__name__}.Sprung"
    yield Hostile("state", lambda sentinel: p.dumps(Sprung(sentinel), 2), (own,), live=True)
    yield Hostile("state-0", lambda sentinel: p.dumps(Sprung(sentinel), 0), ("copy_reg._reconstructor", own), live=True)
    yield Hostile("inst", lambda sentinel: b"(" + touch(sentinel) + b"ios\nsystem\n.", ("os.system",), live=True)
    yield Hostile(
        "obj",
        lambda sentinel: whole(p.MARK + name("os", "system") + touch(sentinel) + p.OBJ),
        ("os.system",),
        live=True,
    )
    yield Hostile("plain-object", lambda _: p.dumps(Plain(), 1), ("copy_reg._reconstructor", "__builtin__.object"))
    yield fixed("newobj", popen + pair(text("ls")) + p.NEWOBJ, "subprocess.Popen")
    yield fixed("newobj-ex", popen + pair(text("ls")) + p.EMPTY_DICT + p.NEWOBJ_EX, "subprocess.Popen")
    yield fixed(
        "newobj-of-an-allowed-name",
        ndarray + pair(pair(number(10**12))) + p.NEWOBJ,
        "numpy.ndarray (as a class to make objects of)",
    )
    yield fixed("class-as-value", p.MARK + name("builtins", "set") + p.LIST, "a class")
    for kind, empty in (("dict", p.EMPTY_DICT), ("list", p.EMPTY_LIST), ("set", p.EMPTY_SET)):
        yield fixed(f"state-of-a-{kind}", empty + p.EMPTY_DICT + p.BUILD, f"a state for a {kind}")


def _that_reach_outside() -> Iterator[Hostile]:
    for body, says in (
        (p.EXT1 + b"\x01", "the extension code 1"),
        (p.EXT2 + b"\x00\x01", "the extension code 256"),
        (p.EXT4 + b"\x00\x00\x01\x00", "the extension code 65536"),
        (p.PERSID + b"secret\n", "an object from outside the file (PERSID)"),
        (p.NONE + p.BINPERSID, "an object from outside the file (BINPERSID)"),
        (p.NEXT_BUFFER, "a buffer from outside the file"),
        (p.NONE + p.READONLY_BUFFER, "a buffer from outside the file"),
        (p.NONE + p.DUP, "the opcode DUP"),
    ):
        yield fixed(says.replace(" ", "-"), p.MARK + body + p.LIST, says)


def _that_misuse_what_is_allowed() -> Iterator[Hostile]:
    f4, objects, two = dtype("f4"), dtype("O8", "|"), p.MARK + p.NONE + p.NONE + p.LIST
    four, nothing = p.SHORT_BINBYTES + b"\x04abcd", p.SHORT_BINBYTES + b"\0"
    one, million, trillion = (pair(number(10**k)) for k in (0, 6, 12))
    reconstruct, scalar = (name("numpy.core.multiarray", what) for what in ("_reconstruct", "scalar"))
    buffer = name("numpy._core.numeric", "_frombuffer")
    # numpy itself reads beyond the list here, and the process ends.
    yield fixed("short-list", array(million, objects, two), "numpy.ndarray (of shape (1000000,)")
    yield fixed("shape-beyond-bytes", array(trillion, f4, four), "numpy.ndarray (of shape (1000000000000,)")
    yield fixed("shape-of-nothing", array(pair(number(0), number(10**12)), f4, nothing), "(0, 1000000000000)")
    yield fixed("negative-shape", array(pair(number(-1), number(-1)), f4, four), "with a shape that is not one")
    yield fixed("no-size", array(trillion, dtype("S0", "|", 0), nothing), "with a dtype that is not one")
    yield fixed("no-dtype", array(one, p.NONE, four), "with a dtype that is not one")
    yield fixed("objects-from-bytes", array(one, objects, four), "not filled from a list")
    yield fixed("bytes-from-objects", array(one, f4, two), "filled from a list, not from bytes")
    yield fixed("fields", array(one, dtype("f4", fields=p.NONE + two + p.NONE), four), "numpy.dtype (with fields")
    yield fixed("size-of-its-own", dtype("f4", size=2**30), "numpy.dtype (with fields or a size of its own)")
    yield fixed("structure", dtype("V8", "|", 8), "numpy.dtype (only of plain numbers, text and objects, not of 'V8')")
    yield fixed("dates", dtype("M8"), "numpy.dtype (only of plain numbers, text and objects, not of 'M8')")
    yield fixed("subclass", call(reconstruct, name("numpy", "dtype"), one, four), "something else than numpy.ndarray")
    yield fixed("never-filled", call(reconstruct, name("numpy", "ndarray"), one, four), "an array without content")
    yield fixed("encoding", call(name("_codecs", "encode"), text("x"), text("rot13")), "_codecs.encode (only for text")
    yield fixed("short-scalar", call(scalar, f4, nothing), "of 0 bytes where float32 has 4")
    yield fixed("scalar-object", call(scalar, objects, four), "of no plain dtype")
    yield fixed("axes", call(buffer, four, f4, one, text("K"), pair(number(5))), "an order of axes that is not one")
    yield fixed("list-as-key", p.EMPTY_DICT + p.EMPTY_LIST + p.NONE + p.SETITEM, "set member that is a list")
    itself = np.empty(1, dtype=object)
    itself[0] = itself
    yield Hostile("holds-itself", lambda _: p.dumps(itself, 4), ("an array that holds itself",))


def _that_ask_for_memory() -> Iterator[Hostile]:
    huge = number(10**12)
    for body, says in (
        (call(name("numpy", "ndarray"), pair(huge)), "numpy.ndarray (called by itself"),
        (call(name("builtins", "bytearray"), huge), "builtins.bytearray (not from bytes or text)"),
        (call(name("__builtin__", "bytes"), huge), "__builtin__.bytes (only for no bytes at all)"),
        (call(name("builtins", "range"), huge), "builtins.range"),
        (p.BINBYTES8 + struct.pack("<Q", 2**40) + b"x", f"expected {2**40} bytes"),
        (p.BINUNICODE8 + struct.pack("<Q", 2**61) + b"x", f"expected {2**61} bytes"),
        (p.BYTEARRAY8 + struct.pack("<Q", 2**41) + b"x", f"expected {2**41} bytes"),
        (p.BINBYTES + b"\xff" * 4, f"expected {2**32 - 1} bytes"),
        (p.LONG4 + struct.pack("<i", 2**31 - 1) + b"\1", "not enough data in stream to read long4"),
        (p.BINSTRING + struct.pack("<i", -2), "byte count < 0: -2"),
        (p.NONE + p.LONG_BINPUT + b"\xff" * 4, f"as number {2**32 - 1} in a file"),
        (p.NONE + p.PUT + str(10**30).encode() + b"\n", f"as number {10**30} in a file"),
        # A deep tuple is hashed, and arrays in arrays are freed, by recursion in C: both end the process.
        (p.EMPTY_DICT + p.EMPTY_TUPLE + p.TUPLE1 * 100_000 + p.NONE + p.SETITEM, "of more than 1000 parts"),
        (_arrays_in_arrays(1_000), "arrays within arrays, more than 8 deep"),
    ):
        yield fixed(says.replace(" ", "-"), body, says)


def _arrays_in_arrays(depth: int) -> bytes:
    begin = array(pair(number(1)), dtype("O8", "|"), p.MARK)[: -len(p.TUPLE + p.BUILD)]
    return begin * depth + p.NONE + (p.LIST + p.TUPLE + p.BUILD) * depth

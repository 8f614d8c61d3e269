"""What a name in a pickle may mean: containers, numbers, text and plain numpy arrays, built here from the bytes.

The names are the few that Python 2 and 3 and numpy 1 and 2 write for such values. None of them is looked up or
called: each has a builder in `BUILDERS` that takes the arguments the file gives, checks them and makes the value
itself, so that the file can neither ask for more memory than it brings nor hand numpy a state that numpy would trust.
"""

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mbd.tensors import Array

Arguments = tuple[Any, ...]

_PLAIN = re.compile(r"[biufc]\d{1,2}|[SU]\d{1,9}|O[48]?")
_KEY_PARTS = 1000
_DIMENSIONS = 32
_NESTED_ARRAYS = 8
_EMPTY_EXTENT = 2**31  # what the other dimensions of an array without elements may come to


class UnusableError(Exception):
    """Something that is allowed was used in a way that no data needs."""


class Blank:
    """A placeholder for what was refused."""


BLANK = Blank()
_ATOMS = (str, bytes, int, float, complex, bool, type(None), frozenset, np.generic, Blank)


@dataclass(frozen=True, eq=False)
class Named:
    """An allowed name and what builds its value."""

    name: str
    build: Callable[[Arguments], Any]


@dataclass(eq=False)
class Unfinished:
    """A dtype or an array whose content the file gives in a second step."""

    name: str
    finish: Callable[[Any], Any]
    memo_keys: list[int] = field(default_factory=list)


def check_key(key: object) -> Hashable:
    """Return a dictionary key or set member that can be hashed quickly: an atom or a small tuple of atoms.

    Python hashes tuples in C without an eye on their depth, and a tuple that holds the same tuple many times over is
    hashed as often; a file can make both enormous.
    """
    if isinstance(key, _ATOMS):
        return key
    todo, parts = [key], 0
    while todo:
        part = todo.pop()
        if type(part) is tuple:
            parts += 1 + len(part)
            if parts > _KEY_PARTS:
                raise UnusableError(f"a dictionary key or set member of more than {_KEY_PARTS} parts")
            todo += part
        elif not isinstance(part, _ATOMS):
            raise UnusableError(f"a dictionary key or set member that is a {type(part).__name__}")
    return key


def _checked(items: object) -> Iterable[Hashable]:
    if type(items) not in (list, tuple):
        raise UnusableError("not from a list")
    return [check_key(item) for item in items]  # type: ignore[attr-defined]


def _ordered_dict(arguments: Arguments) -> OrderedDict[Hashable, Any]:
    if not arguments:
        return OrderedDict()
    (pairs,) = arguments
    if type(pairs) is not list or not all(type(pair) in (list, tuple) and len(pair) == 2 for pair in pairs):
        raise UnusableError("not from a list of pairs")
    return OrderedDict((check_key(key), value) for key, value in pairs)


def _encode(arguments: Arguments) -> bytes:
    text, encoding = arguments
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise UnusableError("only for text into latin1")
    return text.encode("latin1")


def _bytes(arguments: Arguments) -> bytes:
    if arguments:
        raise UnusableError("only for no bytes at all")
    return b""


def _bytearray(arguments: Arguments) -> bytearray:
    if len(arguments) == 1 and type(arguments[0]) is bytes:
        return bytearray(arguments[0])
    if len(arguments) == 1:
        raise UnusableError("not from bytes or text")
    return bytearray(_encode(arguments) if arguments else b"")


def _complex(arguments: Arguments) -> complex:
    if len(arguments) != 2 or not all(type(part) is float for part in arguments):
        raise UnusableError("not from two numbers")
    return complex(*arguments)


def _ndarray(_: Arguments) -> Array:
    raise UnusableError("called by itself, which would take memory that the file does not bring")


def _dtype(arguments: Arguments) -> Unfinished:
    code = arguments[0]
    if type(code) is not str or not _PLAIN.fullmatch(code):
        raise UnusableError(f"only of plain numbers, text and objects, not of {code!r:.40}")
    code = "O" if code.startswith("O") else code

    def finish(state: object) -> np.dtype[Any]:
        # (version, byte order, subarray, names, fields, item size, alignment, flags[, metadata])
        if type(state) is not tuple or len(state) not in (8, 9) or state[1] not in ("<", ">", "|", "="):
            raise UnusableError("with a state that plain numbers, text and objects do not have")
        dtype: np.dtype[Any] = np.dtype(state[1] + code)
        if any(part is not None for part in state[2:5]) or state[5] not in (-1, dtype.itemsize):
            raise UnusableError("with fields or a size of its own")
        return dtype

    return Unfinished("numpy.dtype", finish)


def _content(data: object) -> bytes | bytearray | memoryview:
    """Return the bytes of an array; Python 2 wrote them as text."""
    if type(data) is str:
        return data.encode("latin1")
    if not isinstance(data, bytes | bytearray | memoryview):
        raise UnusableError(f"filled from a {type(data).__name__}, not from bytes")
    return data


def _check_shape(dtype: object, shape: object, brought: int, unit: int) -> None:
    """Check that an array of `shape` is exactly what `brought` units of content fill."""
    if type(shape) is not tuple or len(shape) > _DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise UnusableError("with a shape that is not one")
    if not isinstance(dtype, np.dtype) or not dtype.itemsize:
        raise UnusableError("with a dtype that is not one")
    if math.prod(shape) * unit != brought or math.prod(n or 1 for n in shape) > max(brought, _EMPTY_EXTENT):
        raise UnusableError(f"of shape {shape!r:.60}, which its content of {brought} does not fill")


def _check_nesting(items: Iterable[Any]) -> None:
    """Check that arrays of objects do not hold each other too deep: numpy frees them by recursion."""
    for _ in range(_NESTED_ARRAYS):
        inner = {id(item): item for item in items if type(item) is np.ndarray and item.dtype.hasobject}
        if not inner:
            return
        items = [item for array in inner.values() for item in array.flat]
    raise UnusableError(f"of arrays within arrays, more than {_NESTED_ARRAYS} deep")


def _array(dtype: np.dtype[Any], shape: tuple[int, ...], order: str, data: object) -> Array:
    if isinstance(dtype, np.dtype) and dtype.hasobject:
        if type(data) is not list:
            raise UnusableError("of objects, not filled from a list")
        _check_shape(dtype, shape, len(data), 1)
        _check_nesting(data)
        return np.fromiter(data, dtype=object, count=len(data)).reshape(shape)
    content = _content(data)
    _check_shape(dtype, shape, len(content), getattr(dtype, "itemsize", 0))
    return np.ndarray(shape, dtype, buffer=content, order="F" if order == "F" else "C")


def _reconstruct(arguments: Arguments) -> Unfinished:
    kind = arguments[0]
    if type(kind) is not Named or kind.build is not _ndarray:
        raise UnusableError("of something else than numpy.ndarray")

    def finish(state: object) -> Array:
        if type(state) is not tuple or len(state) != 5:
            raise UnusableError("with a state that arrays do not have")
        _, shape, dtype, fortran, data = state
        return _array(dtype, shape, "F" if fortran else "C", data)

    return Unfinished("numpy.ndarray", finish)


def _frombuffer(arguments: Arguments) -> Array:
    data, dtype, shape, order, *axes = arguments
    array = _array(dtype, shape, "F" if order == "F" else "C", data)
    if order != "K" or not axes:
        return array
    if type(axes[0]) is not tuple or sorted(axes[0]) != list(range(array.ndim)):
        raise UnusableError("with an order of axes that is not one")
    return array.transpose(axes[0])


def _scalar(arguments: Arguments) -> Any:  # noqa: ANN401 -- any of numpy's scalars
    dtype, data = arguments if len(arguments) == 2 else (*arguments, b"")
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise UnusableError("of no plain dtype")
    content = _content(data)
    if len(content) != dtype.itemsize:
        raise UnusableError(f"of {len(content)} bytes where {dtype} has {dtype.itemsize}")
    return np.ndarray((), dtype, buffer=content)[()] if content else dtype.type()


def takes_content(value: object) -> bool:
    """Return whether `value` waits for the content of an array, which may then be a view of the file."""
    return type(value) is Unfinished or (type(value) is Named and value.build is _frombuffer)


_ALLOWED: dict[tuple[tuple[str, ...], str], Callable[[Arguments], Any]] = {
    (("builtins", "__builtin__"), "set"): lambda arguments: set(_checked(*arguments)) if arguments else set(),
    (("builtins", "__builtin__"), "frozenset"): lambda arguments: frozenset(_checked(*arguments) if arguments else ()),
    (("builtins", "__builtin__"), "bytes"): _bytes,
    (("builtins", "__builtin__"), "bytearray"): _bytearray,
    (("builtins", "__builtin__"), "complex"): _complex,
    (("collections",), "OrderedDict"): _ordered_dict,
    (("_codecs",), "encode"): _encode,
    (("numpy",), "ndarray"): _ndarray,
    (("numpy",), "dtype"): _dtype,
    (("numpy.core.multiarray", "numpy._core.multiarray"), "_reconstruct"): _reconstruct,
    (("numpy.core.multiarray", "numpy._core.multiarray"), "scalar"): _scalar,
    (("numpy.core.numeric", "numpy._core.numeric"), "_frombuffer"): _frombuffer,
}
BUILDERS = {
    (module, name): Named(f"{module}.{name}", build)
    for (modules, name), build in _ALLOWED.items()
    for module in modules
}

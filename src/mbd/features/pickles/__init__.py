"""Pickles as data: containers, text, numbers and numpy arrays, read without running anything.

A pickle is a program, and `pickle.load` runs it: it imports what the file names and calls it. An allow-list of names
in `Unpickler.find_class` is not enough for arrays, because the file then sets the state of numpy's own objects, and
numpy trusts it: an array of a million objects filled from a list of two ends the process. So the file is never given
to `pickle`; `machine` walks through it, and `values` makes the values.

Memory is bounded by the file. Arrays are read-only, and large ones are views of the file, read from disk when they are
looked at.
"""

import mmap
from pathlib import Path
from typing import Literal

import numpy as np

from mbd.errors import DataError
from mbd.features.pickles.machine import DamagedError, Machine

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

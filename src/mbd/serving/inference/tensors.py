"""Tensors of the protocol: numbers in JSON, nested or flat, or bytes in row-major order, little-endian."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mbd.serving.inference.errors import InferenceError, shown
from mbd.tensors import Array

DATATYPES = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
"""of the protocol, but BYTES, which no model takes"""
_WHOLE, _REAL = "iu", "fiu"
_MOST_AXES = 8


@dataclass(frozen=True)
class TensorHead:
    """What a request says of a tensor before its values."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of bytes of its values."""
        return math.prod(self.shape) * DATATYPES[self.datatype].itemsize


def read_head(entry: object) -> TensorHead:
    """Parse name, datatype and shape of a tensor.

    Raises:
        InferenceError: One of them is missing or impossible.

    """
    match entry:
        case {"name": str(name), "datatype": str(datatype), "shape": list(shape)}:
            pass
        case _:
            raise InferenceError(
                "malformed", "each input needs a name, a datatype and a shape", hint="see docs/inference.md"
            )
    if datatype not in DATATYPES:
        raise InferenceError(
            "malformed", f"there is no datatype {shown(datatype)}", key=name, hint=f"use one of {', '.join(DATATYPES)}"
        )
    if not 1 <= len(shape) <= _MOST_AXES or not all(type(n) is int and 0 <= n < 2**31 for n in shape):
        raise InferenceError("malformed", "a shape is a list of whole numbers", key=name, value=shown(shape))
    return TensorHead(name, datatype, tuple(shape))


def from_bytes(head: TensorHead, data: memoryview) -> Array:
    """Return the tensor whose values are these bytes; they are not copied."""
    if len(data) != head.size:
        raise InferenceError(
            "malformed",
            f"its shape and datatype need {head.size} bytes, and it has {len(data)}",
            key=head.name,
            value=list(head.shape),
        )
    return np.frombuffer(data, DATATYPES[head.datatype]).reshape(head.shape)


def from_json(head: TensorHead, data: object) -> Array:
    """Return the tensor whose values are a list of numbers, nested or flat."""
    dtype = DATATYPES[head.datatype]
    problem: str | None = None
    try:
        found = np.asarray(data) if isinstance(data, list) else np.asarray(None)
    except ValueError:
        problem = "its rows have different lengths"
    else:
        if not found.size and isinstance(data, list):
            found = found.astype(dtype)
        if found.dtype.kind not in {"f": _REAL, "b": "b"}.get(dtype.kind, _WHOLE):
            kind = {"f": "numbers", "b": "true or false"}.get(dtype.kind, "whole numbers")
            problem = f"its data are not a list of {kind}"
        elif found.shape not in (head.shape, (math.prod(head.shape),)):
            problem = f"its data have the shape {list(found.shape)}, and it says {list(head.shape)}"
        elif dtype.kind in _WHOLE and found.size and not _within(found, dtype):
            problem = f"a value does not fit into {head.datatype}"
    if problem:
        raise InferenceError("malformed", problem, key=head.name)
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, which is refused by name later
        return found.astype(dtype).reshape(head.shape)


def _within(found: Array, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return int(found.min()) >= limits.min and int(found.max()) <= limits.max

"""Safetensors files as memory-mapped numpy arrays.

Writing is the library's. Reading maps the file instead of copying it, so that a batch touches only its own
rows; the header is checked first (https://github.com/huggingface/safetensors, section "Format").
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from mbd.errors import DataError

Array = np.ndarray[Any, Any]

_DTYPES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "I32": np.int32,
    "I64": np.int64,
    "F16": np.float16,
    "F32": np.float32,
    "F64": np.float64,
}
_LARGEST_HEADER = 100_000_000


def save_tensors(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write `tensors`; the same tensors give the same bytes."""
    save_file({name: np.asarray(tensor, order="C") for name, tensor in sorted(tensors.items())}, path)


def open_tensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a file as read-only arrays that are read from disk when they are looked at."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise _damaged(path, f"the header claims {length} bytes of a file of {size}")
            header = json.loads(stream.read(length))
    except FileNotFoundError as error:
        raise DataError("the tensor file is missing", file=path) from error
    except ValueError as error:
        raise _damaged(path, "the header is not JSON") from error
    header.pop("__metadata__", None)
    start = 8 + length
    return {name: _map(path, name, entry, start, size) for name, entry in header.items()}


def _map(path: Path, name: str, entry: dict[str, Any], start: int, size: int) -> Array:
    try:
        dtype = np.dtype(_DTYPES[entry["dtype"]])
        shape = tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"tensor {name!r} is described as {entry}") from error
    count = int(np.prod(shape, dtype=object))
    if begin < 0 or min(shape, default=0) < 0 or end - begin != count * dtype.itemsize or start + end > size:
        raise _damaged(path, f"tensor {name!r} does not fit into the file ({size} bytes)")
    if not count:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=start + begin, shape=(count,)).reshape(shape)


def _damaged(path: Path, how: str) -> DataError:
    return DataError(f"the tensor file is damaged or cut off: {how}", file=path, way_out="make or fetch it again")

"""Safetensors files: written in one pass with their digest, read as memory-mapped numpy arrays.

The format (https://github.com/huggingface/safetensors, section "Format"): 8 bytes length of the header, the header
as JSON (name → dtype, shape, offsets), the bytes of all tensors. The library itself would copy every tensor once
more on writing and on reading; files go both ways between it and this module.
"""

import hashlib
import json
import math
import mmap
import os
import reprlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
_NAMES = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
_LARGEST_HEADER = 100_000_000
_CHUNK = 1 << 20
_RELEASED = 1 << 25


def save_tensors(path: Path, tensors: Mapping[str, Array]) -> str:
    """Write `tensors`, synced to disk, and return the SHA-256 of the file; the same tensors give the same bytes."""
    # Wide types first keeps every tensor aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header, end = {}, 0
    for name in names:
        start, end = end, end + tensors[name].nbytes
        dtype = _NAMES[tensors[name].dtype]
        header[name] = {"dtype": dtype, "shape": tensors[name].shape, "data_offsets": (start, end)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("wb") as stream:
        for part in (len(text).to_bytes(8, "little"), text, *(tensors[name] for name in names)):
            data = part if isinstance(part, bytes) else np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            # Hashed while it is in the cache, chunk by chunk.
            for start in range(0, len(data), _CHUNK):
                chunk = data[start : start + _CHUNK]
                digest.update(chunk)
                stream.write(chunk)
                if isinstance(part, np.ndarray) and start % _RELEASED == 0:
                    release(part)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


class Tensors(dict[str, Array]):
    """The tensors of a file: read-only arrays that are read from disk when they are looked at."""

    def __init__(self, arrays: Mapping[str, Array], mapped: mmap.mmap) -> None:
        super().__init__(arrays)
        self._mapped = mapped

    def release(self) -> None:
        """Give back the memory of pages that were looked at; they are read again when they are needed again."""
        self._mapped.madvise(mmap.MADV_DONTNEED)


_SCRATCH_AT_LEAST = 1 << 26
"""bytes of an array that is kept in a file instead of in memory"""


def scratch(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Return an array of zeros; a large one lies in a file without a name in the temporary folder (`TMPDIR`)."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < _SCRATCH_AT_LEAST:
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile() as stream:
        stream.truncate(size)
        mapped = mmap.mmap(stream.fileno(), size)
    return np.frombuffer(mapped, dtype).reshape(shape)


def release(array: Array) -> None:
    """Give back the memory of an array that lies in a file; it is read again when it is needed again."""
    if (mapped := file_of(array)) is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


def file_of(array: Array) -> mmap.mmap | None:
    """Return the file from which an array is read when it is looked at, if it lies in one."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    return owner if isinstance(owner, mmap.mmap) else None


def open_tensors(path: Path) -> Tensors:
    """Map a file into memory.

    Every byte of a certified file must mean something, so the file is exactly what :func:`save_tensors` would write:
    every name once, no metadata, and tensors that cover the data from its first byte to its last without overlap.

    Raises:
        DataError: the file is missing, cut off, or holds anything else.
    """
    try:
        with path.open("rb") as stream:
            size = path.stat().st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise _damaged(path, f"the header claims {length} bytes of a file of {size}")
            header = json.loads(stream.read(length), object_pairs_hook=_every_key_once)
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise DataError("the tensor file is missing or cannot be read", file=path) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"the header is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise _damaged(path, "the header is not a mapping")
    if "__metadata__" in header:
        raise _damaged(path, "it has metadata, which no digest of a tensor covers")
    _check_coverage(path, header, size - 8 - length)
    try:
        return Tensors({name: _view(mapped, entry, 8 + length) for name, entry in header.items()}, mapped)
    except ValueError as error:
        raise _damaged(path, f"a tensor has an impossible shape: {error}") from error


def _every_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key occurs twice")
    return mapping


def _check_coverage(path: Path, header: dict[str, Any], size: int) -> None:
    """Check that every entry is well formed, and that the tensors tile the data."""
    spans = []
    for name, entry in header.items():
        match entry:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(begin), int(end)], **more} if (
                not more
            ):
                numbers = [begin, end, *shape]
            case _:
                raise _damaged(path, f"tensor {name!r} is described as {reprlib.repr(entry)}")
        if dtype not in _DTYPES or not all(type(n) is int and n >= 0 for n in numbers):
            raise _damaged(path, f"tensor {name!r} is described as {reprlib.repr(entry)}")
        if not name.isprintable():
            raise _damaged(path, f"a tensor has the unprintable name {name!r}")
        if end - begin != math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize or end > size:
            raise _damaged(path, f"tensor {name!r} does not fit into the file ({size} bytes of data)")
        spans.append((begin, end))
    reached = 0
    for begin, end in sorted(spans):
        if begin != reached:
            raise _damaged(path, f"the tensors do not cover the data exactly once, at byte {min(begin, reached)}")
        reached = end
    if reached != size:
        raise _damaged(path, f"{size - reached} bytes follow the last tensor")


def _view(mapped: mmap.mmap, entry: dict[str, Any], start: int) -> Array:
    dtype, shape = np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"])
    if not (count := math.prod(shape)):
        return np.zeros(shape, dtype)
    return np.frombuffer(mapped, dtype, count, start + entry["data_offsets"][0]).reshape(shape)


def _damaged(path: Path, how: str) -> DataError:
    return DataError(f"the tensor file is damaged or cut off: {how}", file=path, hint="make or fetch it again")


# Precision: how many bits of the mantissa are in use

_MANTISSAS: dict[int, tuple[type[np.unsignedinteger[Any]], int]] = {
    2: (np.uint16, 10),
    4: (np.uint32, 23),
    8: (np.uint64, 52),
}
"""bytes of a float → the unsigned integer of its size, and the explicit bits of its mantissa"""


def is_float(tensor: Array) -> bool:
    """Whether a tensor holds floating-point numbers."""
    return bool(np.issubdtype(tensor.dtype, np.floating))


def round_mantissa(array: Array, bits: int) -> Array:
    """Return floats rounded to `bits` explicit bits of their mantissa (to nearest, ties to even); others unchanged."""
    if array.dtype.kind != "f":
        return array
    integer, mantissa = _MANTISSAS[array.dtype.itemsize]
    if bits >= mantissa:
        return array
    raw = np.asarray(array).view(integer)
    low, unit = integer((1 << (mantissa - bits)) - 1), integer(1)
    up = (low >> unit) + ((raw >> integer(mantissa - bits)) & unit)
    rounded = ((raw + up) & ~low).view(array.dtype)
    # The largest numbers would become infinite; infinity and NaN have a mantissa of their own, which may overflow.
    nearest = np.where(np.isfinite(rounded), rounded, (raw & ~low).view(array.dtype))
    return np.where(np.isfinite(array), nearest, array)


def within_mantissa(array: Array, bits: int) -> bool:
    """Say whether floats use no more than `bits` explicit bits of their mantissa."""
    if array.dtype.kind != "f":
        return True
    integer, mantissa = _MANTISSAS[array.dtype.itemsize]
    low = integer((1 << max(mantissa - bits, 0)) - 1)
    return not (np.asarray(array).view(integer) & low).any()

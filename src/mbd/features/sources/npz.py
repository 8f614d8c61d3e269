"""Source `npz`: arrays named `{split}_{modality}`, `{split}_labels`, `{split}_ids`.

Also read where they are there: `{split}_groups`, `{split}_{modality}_available`, `{split}_{modality}_attribute` and
`{split}_{modality}_lengths`. Every other array of numbers is a modality: n × d vectors, n × T × d sequences, n ×
channels × height × width images, and n × T whole numbers with lengths token ids. A name like `text_lsa` beside `text`
is a variant of it, taken only when features.source.modalities asks for it. What is none of these (texts, columns) is
noted; an array with more dimensions is an error, for it would be a modality that silently vanishes. Positions behind a
row's length are set to zero; a row of length 0 lacks the modality.
Splits are train, valid (or val, dev), test and, if there is one, calibration.
"""

import io
import math
import mmap
import re
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mbd.blocks import convert
from mbd.errors import DataError
from mbd.features.pooling import pool
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows, within
from mbd.features.sources import Source, choose_modalities, labelled
from mbd.features.splits import with_groups_from_ids
from mbd.formats.features import lengths_of
from mbd.params.features import FeaturesSettings
from mbd.tensors import Array

_KEY = re.compile(rf"^({'|'.join((*SPLITS, *SPLIT_ALIASES))})_(.+)$", re.DOTALL)
_ROW_KEYS = {"ids", "labels", "groups"}
_COMPANIONS = ("_available", "_attribute", "_lengths")
_MOST_AXES = 4
_NAMES = "name arrays train_text, train_labels, train_ids, … for train, valid and test: docs/feature-data.md"
_HINT = "give an .npz file written by numpy.savez"
_LARGEST_NPY_HEADER = 1 << 17
_INFLATED_BY, _INFLATED_AT_LEAST = 4, 256 << 20
_ODD = (ValueError, TypeError, SyntaxError, LookupError, RecursionError, RuntimeError, tokenize.TokenError)
"""what zipfile and numpy raise for odd archives and headers: other compressions, encryption, broken literals"""


def read(params: FeaturesSettings) -> Collection:
    """Read the file named by `features.source.path`."""
    path = Path(params.source.path or "")
    arrays = _read_arrays(path)
    keys = {split: _keys_of(split, arrays) for split in SPLITS}
    keys = {split: names for split, names in keys.items() if names}
    wanted, notes = _modalities(arrays, keys, params.source.modalities)
    pooled = params.source.sequences == "mean"
    splits = {split: _rows(split, arrays, names, wanted, pooled) for split, names in keys.items()}
    if not any("groups" in names for names in keys.values()):
        splits = with_groups_from_ids(splits, params.source.group_pattern)
    return labelled(path.stem, splits, params.source.task, files=(str(path),), notes=notes)


def _read_arrays(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise DataError("the file is missing", key="features.source.path", hint=_HINT)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            _check_sizes(path.stat().st_size, list(members.values()))
            entries = {name: entry for name, entry in members.items() if _KEY.match(name)}
            for entry in entries.values():
                archive.open(entry).close()  # refuses a local header that contradicts the directory
        if not entries:
            raise DataError("no array belongs to a split", value=", ".join(members) or "none", hint=_NAMES)
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda entry: _check(mapped, entry), entries.values()))
        # Headers one after the other: numpy parses them with `ast`, which in Python 3.11 may fail in several threads.
        return {name: _array(path, mapped, entry) for name, entry in entries.items()}
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError) as error:
        raise DataError(f"this is not an .npz archive, or it is truncated: {error}", hint=_HINT) from error
    except _ODD as error:
        raise DataError(f"an array cannot be read: {error}", hint=_HINT) from error


def _check_sizes(size: int, entries: list[zipfile.ZipInfo]) -> None:
    """Refuse an entry that is longer than the file, and a small file that becomes a huge one, before it is read."""
    if truncated := [entry.filename for entry in entries if entry.header_offset + entry.compress_size > size]:
        raise zipfile.BadZipFile(f"{truncated[0]} is longer than the file")
    inflated = sum(entry.file_size for entry in entries)
    if inflated > max(_INFLATED_AT_LEAST, _INFLATED_BY * size):
        raise DataError(
            f"the arrays take {inflated >> 20} MiB, {inflated // max(size, 1)} times the size of the file",
            hint="if that is right, save them with numpy.savez instead of numpy.savez_compressed: plain arrays have no "
            "limit",
        )


def _stored(mapped: mmap.mmap, entry: zipfile.ZipInfo) -> memoryview:
    """Return the bytes of an entry as they are in the archive."""
    # The local header's name and extra field may differ in length from the directory's.
    name_length, extra_length = struct.unpack_from("<HH", mapped, entry.header_offset + 26)
    start = entry.header_offset + 30 + name_length + extra_length
    return memoryview(mapped)[start : start + entry.compress_size]


def _check(mapped: mmap.mmap, entry: zipfile.ZipInfo) -> None:
    """Compare the checksum of an entry that is stored plainly; others are checked while they are read."""
    if entry.compress_type != zipfile.ZIP_STORED:
        return
    data = _stored(mapped, entry)
    if len(data) != entry.file_size or zlib.crc32(data) != entry.CRC:
        raise zipfile.BadZipFile(f"wrong checksum of {entry.filename}")


def _array(path: Path, mapped: mmap.mmap, entry: zipfile.ZipInfo) -> Array:
    """Return one array; an entry that is stored plainly, as numpy.savez does, is mapped and not copied."""
    if entry.compress_type == zipfile.ZIP_STORED:
        data = _stored(mapped, entry)
    else:
        with zipfile.ZipFile(path) as archive:
            data = memoryview(archive.read(entry))
    header = io.BytesIO(data[: min(len(data), _LARGEST_NPY_HEADER)])
    version = np.lib.format.read_magic(header)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(header)
    if dtype.hasobject:
        raise DataError(
            "an array holds Python objects, which are not read",
            key=entry.filename.removesuffix(".npy"),
            hint="save texts as array.astype(str) and numbers as array.astype(float)",
        )
    if min(shape, default=0) < 0:
        raise ValueError(f"{entry.filename} has the shape {shape}")
    flat = np.frombuffer(data, dtype, math.prod(shape), header.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def _keys_of(split: str, arrays: dict[str, Array]) -> dict[str, str]:
    """Map what follows the split's name to the key of the array."""
    key_of = {}
    for key in arrays:
        match = _KEY.match(key)
        if match and SPLIT_ALIASES.get(match[1], match[1]) == split:
            key_of[match[2]] = key
    return key_of


def _modalities(
    arrays: dict[str, Array], keys: dict[str, dict[str, str]], asked: tuple[str, ...] | None
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the modalities to take, and notes on what is left out."""
    matrices: dict[str, None] = {}
    others: dict[str, None] = {}
    for names in keys.values():
        for name, key in names.items():
            if name in _ROW_KEYS or name.endswith(_COMPANIONS):
                continue
            number = arrays[key].dtype.kind in "fiu"
            if number and arrays[key].ndim > _MOST_AXES and (asked is None or name in asked):
                raise DataError(
                    "features must be vectors, sequences or images: an array of two, three or four dimensions",
                    key=key,
                    value=arrays[key].shape,
                    hint="make one of these of it; or leave it out: features.source.modalities names those to take",
                )
            (matrices if number and 2 <= arrays[key].ndim <= _MOST_AXES else others)[name] = None
    variants = [name for name in matrices if any(name.startswith(f"{other}_") for other in matrices)]
    if asked is None:
        left_out = {"variants not used": variants, "arrays not used": [name for name in others if name not in matrices]}
        notes: dict[str, Any] = {what: names for what, names in left_out.items() if names}
        return tuple(name for name in matrices if name not in variants), notes
    return choose_modalities(asked, matrices), {}


def _rows(split: str, arrays: dict[str, Array], keys: dict[str, str], wanted: tuple[str, ...], pooled: bool) -> Rows:
    def get(name: str) -> Array:
        if name not in keys:
            raise DataError(
                f"the array {split}_{name} is missing",
                key=f"{split}_{name}",
                value=f"there is {', '.join(keys.values())}",
                hint="a split needs {split}_{modality} for each modality, {split}_labels and {split}_ids (a text "
                "for each row, as video7_3)",
            )
        return arrays[keys[name]]

    def numbers(name: str) -> Array:
        array = get(name)
        if array.dtype.kind not in "fiub":
            first = array.ravel()[:1].tolist()
            raise DataError(f"{split}_{name} must be numbers", key=keys[name], value=first, hint="encode them first")
        return array

    parts = {m: _modality(m, keys, numbers, pooled) for m in wanted}
    by_length = {m: part.available for m, part in parts.items() if part.available is not None}
    given = {m: get(f"{m}_available").astype(bool) for m in wanted if f"{m}_available" in keys}
    return Rows.of(
        get("ids").astype(np.str_),
        get("labels").ravel(),
        {m: part.features for m, part in parts.items()},
        groups=arrays[keys["groups"]].astype(np.str_) if "groups" in keys else None,
        available=by_length | {m: bits & by_length[m] if m in by_length else bits for m, bits in given.items()},
        attributes={m: get(f"{m}_attribute").astype(np.int8) for m in wanted if f"{m}_attribute" in keys},
        lengths={m: part.lengths for m, part in parts.items() if part.lengths is not None},
    )


@dataclass(frozen=True)
class _Modality:
    features: Array
    lengths: Array | None = None
    available: Array | None = None
    """where the array itself says so"""


def _modality(name: str, keys: dict[str, str], numbers: Callable[[str], Array], pooled: bool) -> _Modality:
    """Return a modality as it is stored: vectors as float32, token ids as int64, others also as float16 or uint8."""
    array = numbers(name)
    lengths = _lengths(name, keys, numbers, array) if lengths_of(name) in keys else None
    if array.ndim == 2 and lengths is None:
        return _Modality(convert(array, np.float32))
    if array.ndim == 3 and pooled:
        means = pool(array, lengths)
        return _Modality(means.features, available=means.available)
    kind = np.int64 if array.ndim == 2 else array.dtype if array.dtype in (np.float16, np.uint8) else np.float32
    array = convert(array, kind)
    if lengths is None:
        return _Modality(array)
    behind = ~within(lengths, array.shape[1])
    if array[behind].any():
        array = np.where(behind.reshape(*behind.shape, *[1] * (array.ndim - 2)), array.dtype.type(0), array)
    return _Modality(array, lengths, lengths > 0)


def _lengths(name: str, keys: dict[str, str], numbers: Callable[[str], Array], array: Array) -> Array:
    lengths, key = numbers(lengths_of(name)), keys[lengths_of(name)]
    if array.ndim == 4 or (array.ndim == 2 and array.dtype.kind not in "iu"):
        raise DataError(
            "only sequences (rows × positions × dimension) and token ids (rows × positions, integers) have lengths",
            key=key,
            value=f"{keys[name]} is {array.shape} {array.dtype}",
            hint="leave the lengths out, or give the frames",
        )
    whole = lengths.ndim == 1 and lengths.dtype.kind in "iu" and len(lengths) == len(array)
    if not whole or lengths.min(initial=0) < 0 or lengths.max(initial=0) > array.shape[1]:
        raise DataError(
            f"{key} must be a whole number from 0 to {array.shape[1]} for each row",
            key=key,
            value=f"{lengths.shape} {lengths.dtype}" + (f", {lengths.min()} to {lengths.max()}" if whole else ""),
            hint="it counts the positions of a row that are not padding",
        )
    return lengths.astype(np.int64)


SOURCE = Source(read, recognises=lambda path: path.suffix == ".npz")

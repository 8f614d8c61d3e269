"""Source `npz`: arrays named `{split}_{modality}`, `{split}_labels`, `{split}_ids`.

Also read where they are there: `{split}_groups`, `{split}_{modality}_available` and
`{split}_{modality}_attribute`. Every other two-dimensional array of numbers is a modality, but a name like
`text_lsa` beside `text` is a variant of it, taken only when features.source.modalities asks for it. What is neither
(texts, columns) is noted; an array with more dimensions is an error, for it would be a modality that silently vanishes.
Splits are train, valid (or val, dev), test and, if there is one, calibration.
"""

import io
import mmap
import re
import struct
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mbd.errors import DataError
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows
from mbd.features.sources import Source
from mbd.features.splits import with_groups_from_ids
from mbd.params.features import FeaturesSettings
from mbd.tensors import Array

_KEY = re.compile(rf"^({'|'.join((*SPLITS, *SPLIT_ALIASES))})_(.+)$", re.DOTALL)
_ROW_KEYS = {"ids", "labels", "groups"}
_COMPANIONS = ("_available", "_attribute")
_NAMES = "name arrays train_text, train_labels, train_ids, … for train, valid and test: docs/feature-data.md"
_LARGEST_NPY_HEADER = 1 << 17


def read(params: FeaturesSettings) -> Collection:
    """Read the file named by `features.source.path`."""
    path = Path(params.source.path or "")
    arrays = _read_arrays(path)
    keys = {split: _keys_of(split, arrays) for split in SPLITS}
    keys = {split: names for split, names in keys.items() if names}
    wanted, notes = _modalities(path, arrays, keys, params.source.modalities)
    splits = {split: _rows(path, split, arrays, names, wanted) for split, names in keys.items()}
    if not any("groups" in names for names in keys.values()):
        splits = with_groups_from_ids(splits, params.source.group_pattern)
    labels = np.concatenate([rows.labels for rows in splits.values()])
    task = params.source.task or ("classification" if labels.dtype.kind in "iub" else "regression")
    classification = task == "classification"
    if not params.source.task and not classification and (labels >= 0).all() and (labels == labels.round()).all():
        notes["labels"] = "whole numbers, taken as scores; set features.source.task=classification if they are classes"
    label_type = np.int64 if classification else np.float32
    splits = {split: replace(rows, labels=rows.labels.astype(label_type, copy=False)) for split, rows in splits.items()}
    return Collection(
        name=path.stem,
        task=task,
        classes=tuple(str(c) for c in range(int(labels.max(initial=0)) + 1)) if classification else (),
        splits=splits,
        files=(str(path),),
        notes=notes,
    )


def _read_arrays(path: Path) -> dict[str, Array]:
    hint = "give an .npz file written by numpy.savez"
    if not path.is_file():
        raise DataError("the file is missing", file=path, key="features.source.path", hint=hint)
    try:
        with zipfile.ZipFile(path) as archive:
            found = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        entries = {name: entry for name, entry in found.items() if _KEY.match(name)}
        if not entries:
            raise DataError("no array belongs to a split", file=path, value=", ".join(found) or "none", hint=_NAMES)
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda entry: _check(mapped, entry), entries.values()))
        # Headers one after the other: numpy parses them with `ast`, which in Python 3.11 may fail in several threads.
        return {name: _array(path, mapped, entry) for name, entry in entries.items()}
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError) as error:
        raise DataError(f"this is no .npz archive, or it is cut off: {error}", file=path, hint=hint) from error
    except ValueError as error:
        raise DataError(str(error), file=path, hint=hint) from error


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
    if entry.compress_type != zipfile.ZIP_STORED:
        with zipfile.ZipFile(path) as archive, archive.open(entry) as stream:
            try:
                array: Array = np.lib.format.read_array(stream, allow_pickle=False)
            except ValueError as error:
                raise _objects(path, entry) if "allow_pickle" in str(error) else error from None
            return array
    data = _stored(mapped, entry)
    header = io.BytesIO(data[: min(len(data), _LARGEST_NPY_HEADER)])
    version = np.lib.format.read_magic(header)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(header)
    if dtype.hasobject:
        raise _objects(path, entry)
    flat = np.frombuffer(data, dtype, int(np.prod(shape)), header.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def _objects(path: Path, entry: zipfile.ZipInfo) -> DataError:
    return DataError(
        "an array holds Python objects, which are not read",
        file=path,
        key=entry.filename.removesuffix(".npy"),
        hint="save texts as array.astype(str) and numbers as array.astype(float)",
    )


def _keys_of(split: str, arrays: dict[str, Array]) -> dict[str, str]:
    """Map what follows the split's name to the key of the array."""
    found = {}
    for key in arrays:
        match = _KEY.match(key)
        if match and SPLIT_ALIASES.get(match[1], match[1]) == split:
            found[match[2]] = key
    return found


def _modalities(
    path: Path, arrays: dict[str, Array], keys: dict[str, dict[str, str]], asked: tuple[str, ...] | None
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the modalities to take, and notes on what is left out."""
    matrices: dict[str, None] = {}
    others: dict[str, None] = {}
    for names in keys.values():
        for name, key in names.items():
            if name in _ROW_KEYS or name.endswith(_COMPANIONS):
                continue
            number = arrays[key].dtype.kind in "fiu"
            if number and arrays[key].ndim > 2 and (asked is None or name in asked):
                raise DataError(
                    "features must be a matrix, a row for each utterance",
                    file=path,
                    key=key,
                    value=arrays[key].shape,
                    hint="make one vector of each sequence, as its mean over time; or leave it out: "
                    "features.source.modalities names those to take",
                )
            (matrices if number and arrays[key].ndim == 2 else others)[name] = None
    variants = [name for name in matrices if any(name.startswith(f"{other}_") for other in matrices)]
    if asked is None:
        left_out = {"variants not used": variants, "arrays not used": [name for name in others if name not in matrices]}
        notes: dict[str, Any] = {what: names for what, names in left_out.items() if names}
        return tuple(name for name in matrices if name not in variants), notes
    for name in asked:
        if name not in matrices:
            raise DataError(
                f"the file has no modality {name!r}",
                file=path,
                key="features.source.modalities",
                hint=f"it has {', '.join(matrices) or 'none'}",
            )
    return asked, {}


def _rows(path: Path, split: str, arrays: dict[str, Array], keys: dict[str, str], wanted: tuple[str, ...]) -> Rows:
    def get(name: str) -> Array:
        if name not in keys:
            raise DataError(
                f"the array {split}_{name} is missing",
                file=path,
                key=f"{split}_{name}",
                value=f"there is {', '.join(keys.values())}",
                hint="a split needs {split}_{modality} for each modality, {split}_labels and {split}_ids (a text "
                "for each row, as video7_3)",
            )
        return arrays[keys[name]]

    def numbers(name: str, hint: str) -> Array:
        array = get(name)
        if array.dtype.kind not in "fiub":
            raise DataError(
                f"{split}_{name} must be numbers",
                file=path,
                key=keys[name],
                value=array.ravel()[:1].tolist(),
                hint=hint,
            )
        return array

    return Rows.of(
        get("ids").astype(np.str_),
        numbers("labels", "number the classes from 0, as numpy.unique(labels, return_inverse=True) does").ravel(),
        {m: numbers(m, "encode them first").astype(np.float32, copy=False) for m in wanted},
        groups=arrays[keys["groups"]].astype(np.str_) if "groups" in keys else None,
        available={m: get(f"{m}_available").astype(bool) for m in wanted if f"{m}_available" in keys},
        attributes={m: get(f"{m}_attribute").astype(np.int8) for m in wanted if f"{m}_attribute" in keys},
    )


SOURCE = Source(read, recognises=lambda path: path.suffix == ".npz")

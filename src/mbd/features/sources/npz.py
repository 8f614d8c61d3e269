"""Source `npz`: arrays named `{split}_{modality}`, `{split}_labels`, `{split}_ids`.

Also read where they are there: `{split}_groups`, `{split}_{modality}_available` and
`{split}_{modality}_attribute`. Every other two-dimensional array of numbers is a modality, but a name like
`text_lsa` beside `text` is a variant of it, taken only when features.source.modalities asks for it.
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

import numpy as np

from mbd.errors import DataError
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows
from mbd.features.splits import with_groups_from_ids
from mbd.params.features import Features
from mbd.tensors import Array

_KEY = re.compile(rf"^({'|'.join((*SPLITS, *SPLIT_ALIASES))})_(.+)$")
_ROW_KEYS = {"ids", "labels", "groups"}
_LARGEST_NPY_HEADER = 1 << 17


def read(params: Features) -> Collection:
    """Read the file named by `features.source.path`."""
    path = Path(params.source.path or "")
    arrays = _read_arrays(path)
    keys = {split: _keys_of(split, arrays) for split in SPLITS}
    keys = {split: names for split, names in keys.items() if names}
    wanted, variants = _modalities(path, arrays, keys, params.source.modalities)
    splits = {split: _rows(path, split, arrays, names, wanted) for split, names in keys.items()}
    if not any("groups" in names for names in keys.values()):
        splits = with_groups_from_ids(splits, params.source.group_pattern)
    labels = np.concatenate([rows.labels for rows in splits.values()]) if splits else np.zeros(0)
    task = params.source.task or ("classification" if labels.dtype.kind in "iub" else "regression")
    classification = task == "classification"
    label_type = np.int64 if classification else np.float32
    splits = {split: replace(rows, labels=rows.labels.astype(label_type, copy=False)) for split, rows in splits.items()}
    return Collection(
        name=path.stem,
        task=task,
        classes=tuple(str(c) for c in range(int(labels.max(initial=0)) + 1)) if classification else (),
        splits=splits,
        files=(str(path),),
        notes={"variants not used": variants} if variants else {},
    )


def _read_arrays(path: Path) -> dict[str, Array]:
    way_out = "give an .npz file written by numpy.savez"
    if not path.is_file():
        raise DataError("the file is missing", file=path, key="features.source.path", way_out=way_out)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        entries = {name: entry for name, entry in entries.items() if _KEY.match(name)}
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda entry: _check(mapped, entry), entries.values()))
        # Headers one after the other: numpy parses them with `ast`, which in Python 3.11 may fail in several threads.
        return {name: _array(path, mapped, entry) for name, entry in entries.items()}
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError) as error:
        raise DataError(f"this is no .npz archive, or it is cut off: {error}", file=path, way_out=way_out) from error
    except ValueError as error:
        problem = "an array holds Python objects, which are not read" if "pickle" in str(error) else str(error)
        raise DataError(problem, file=path, way_out=way_out) from error


def _stored(mapped: mmap.mmap, entry: zipfile.ZipInfo) -> memoryview:
    """Return the bytes of an entry as they stand in the archive."""
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
            array: Array = np.lib.format.read_array(stream, allow_pickle=False)
            return array
    data = _stored(mapped, entry)
    header = io.BytesIO(data[: min(len(data), _LARGEST_NPY_HEADER)])
    version = np.lib.format.read_magic(header)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(header)
    if dtype.hasobject:
        raise ValueError("pickled objects")
    flat = np.frombuffer(data, dtype, int(np.prod(shape)), header.tell())
    return flat.reshape(shape, order="F" if fortran else "C")


def _keys_of(split: str, arrays: dict[str, Array]) -> dict[str, str]:
    """Map what stands behind the split's name to the key of the array."""
    found = {}
    for key in arrays:
        match = _KEY.match(key)
        if match and SPLIT_ALIASES.get(match[1], match[1]) == split:
            found[match[2]] = key
    return found


def _modalities(
    path: Path, arrays: dict[str, Array], keys: dict[str, dict[str, str]], asked: tuple[str, ...] | None
) -> tuple[tuple[str, ...], list[str]]:
    matrices: dict[str, None] = {}
    for names in keys.values():
        for name, key in names.items():
            if name not in _ROW_KEYS and arrays[key].ndim == 2 and arrays[key].dtype.kind in "fiu":
                matrices[name] = None
    variants = [name for name in matrices if any(name.startswith(f"{other}_") for other in matrices)]
    if asked is None:
        return tuple(name for name in matrices if name not in variants), variants
    for name in asked:
        if name not in matrices:
            raise DataError(
                f"the file has no modality {name!r}",
                file=path,
                key="features.source.modalities",
                way_out=f"it has {', '.join(matrices) or 'none'}",
            )
    return asked, []


def _rows(path: Path, split: str, arrays: dict[str, Array], keys: dict[str, str], wanted: tuple[str, ...]) -> Rows:
    def get(name: str) -> Array:
        if name not in keys:
            raise DataError(
                f"the array {split}_{name} is missing",
                file=path,
                key=f"{split}_{name}",
                value=f"there is {', '.join(keys.values())}",
                way_out="a split needs {split}_{modality} for each modality, {split}_labels and {split}_ids",
            )
        return arrays[keys[name]]

    return Rows.of(
        get("ids").astype(np.str_),
        get("labels").ravel(),
        {m: get(m).astype(np.float32, copy=False) for m in wanted},
        groups=arrays[keys["groups"]].astype(np.str_) if "groups" in keys else None,
        available={m: get(f"{m}_available").astype(bool) for m in wanted if f"{m}_available" in keys},
        attributes={m: get(f"{m}_attribute").astype(np.int8) for m in wanted if f"{m}_attribute" in keys},
    )

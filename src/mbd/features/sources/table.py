"""Source `table`: CSV, TSV, parquet or Arrow files, or a folder that Hugging Face `datasets` has saved.

One row for each utterance, with columns for id, label, split and group (`features.source.table` names them). A modality
is either a column of lists of numbers (in CSV: `[0.1, 0.2]`), or columns that differ in a number at the end, as
`my voice_0`, `my voice_1`. A modality with an empty cell in a row is not available in that row, unless
`features.source.table.empty` refuses it.

A folder has a file or a folder for each split, named after it, or is a single set that `datasets` has saved. A table
without a split column is divided by group; one without a valid split gives up a share of its training groups.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from mbd.errors import DataError, naming
from mbd.features.rows import SPLIT_ALIASES, SPLITS, Collection, Rows
from mbd.features.sources import Source, choose_modalities, labelled
from mbd.features.sources.media import names_media
from mbd.features.splits import carve_share, with_groups_from_ids
from mbd.params.features import FeaturesSettings, TableSettings
from mbd.tensors import Array

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_ARROW = (".arrow", ".feather")
_SUFFIXES = (*_DELIMITERS, ".parquet", *_ARROW)
_NUMBERED = re.compile(r"^(.*\D)(\d+)$")
_SEPARATORS = "_. -"
_KEY = "features.source.table"


def read(params: FeaturesSettings) -> Collection:
    """Read the file or folder named by `features.source.path`."""
    try:
        return _read(params)
    except (ValueError, pa.ArrowException) as error:  # text that is not UTF-8, numbers that do not fit, lists as ids
        raise DataError(f"the table cannot be read: {error}") from error


def _read(params: FeaturesSettings) -> Collection:
    path, settings = Path(params.source.path or ""), params.source.table
    files, table = _tables(path, settings.split)
    columns = _modality_columns(table, settings, params.source.modalities)
    rows = _rows(table, settings, columns)
    lacking = {modality: int((~there).sum()) for modality, there in rows.available.items() if not there.all()}
    splits = _by_split(table, settings.split, rows)
    if settings.group not in table.column_names:
        splits = with_groups_from_ids(splits, params.source.group_pattern)
    splits, drawn = _with_all_splits(splits, settings, params.seed)
    used = {settings.id, settings.label, settings.split, settings.group, *(c for cs in columns.values() for c in cs)}
    unused = [name for name in table.column_names if name not in used]
    notes = ({"columns not used": unused} if unused else {}) | {
        f"rows without {modality}": f"{count}, because a cell is empty" for modality, count in lacking.items()
    }
    names = _class_names(table, settings.label)
    return labelled(path.stem, splits, params.source.task, names, files=tuple(map(str, files)), notes=notes | drawn)


def recognises(path: Path) -> bool:
    """Return whether a path is a table of feature vectors, and not a list of media files."""
    if path.is_dir():
        return bool(_files(path))
    return path.suffix in _SUFFIXES and not (path.suffix == ".csv" and names_media(path))


# Files


def _files(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each split in a folder: `train.csv`, or those in `train/`; of a single saved set by ""."""
    if (folder / "state.json").is_file():
        return {"": sorted(file for file in folder.iterdir() if file.suffix == ".arrow")}
    by_split: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        split = SPLIT_ALIASES.get(entry.stem, entry.stem)
        if split in SPLITS:
            inside = sorted(entry.iterdir()) if entry.is_dir() else [entry]
            by_split[split] = [file for file in inside if file.suffix in _SUFFIXES]
    return {split: files for split, files in by_split.items() if files}


def _tables(path: Path, split_column: str) -> tuple[list[Path], pa.Table]:
    """Return the files that were read, and their rows as one table."""
    if path.is_file():
        return [path], _table(path)
    by_split = _files(path) if path.is_dir() else {}
    if not by_split:
        raise DataError(
            "there is no table here",
            key="features.source.path",
            hint=f"give a file ({', '.join(_SUFFIXES)}), or a folder with one for each split, named after it",
        )
    tables = []
    for split, files in by_split.items():
        table = pa.concat_tables([_table(file) for file in files])
        if split and split_column not in table.column_names:
            table = table.append_column(split_column, pa.repeat(pa.scalar(split), len(table)))
        tables.append(table)
    try:
        return [file for files in by_split.values() for file in files], pa.concat_tables(tables)
    except pa.ArrowInvalid as error:
        hint = "every split needs the same columns with the same types"
        raise DataError(f"the tables of the splits have different columns: {error}", hint=hint) from error


def _table(file: Path) -> pa.Table:
    with naming(file):
        try:
            if file.suffix in _DELIMITERS:
                table = pa.csv.read_csv(file, parse_options=pa.csv.ParseOptions(delimiter=_DELIMITERS[file.suffix]))
            elif file.suffix == ".parquet":
                table = pa.parquet.read_table(file, memory_map=True)
            else:
                table = _arrow(file)
            # Arrow and parquet files hold offsets, indices and texts that pyarrow follows unchecked, beyond the memory
            # of the process if they say so.
            table.validate(full=True)
        except (pa.ArrowException, OSError, UnicodeDecodeError, MemoryError, SystemError) as error:
            reason, hint = str(error).partition("\n")[0], f"the name says that it is {file.suffix}"
            raise DataError(f"this cannot be read as a table: {reason or type(error).__name__}", hint=hint) from error
        repeated = [name for name in dict.fromkeys(table.column_names) if table.column_names.count(name) > 1]
        if repeated:
            raise DataError("a column occurs twice", key=repeated[0], hint="give each column a name of its own")
        if not len(table):
            raise DataError("the table has no rows", hint="a row is an utterance")
    return table


def _arrow(file: Path) -> pa.Table:
    """Read an Arrow file, or an Arrow stream, which `datasets` writes."""
    mapped = pa.memory_map(str(file))
    try:
        return pa.ipc.open_file(mapped).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_stream(mapped).read_all()


# Rows


def _rows(table: pa.Table, settings: TableSettings, columns: Mapping[str, list[str]]) -> Rows:
    """Return all rows of the table."""
    there, count = table.column_names, len(table)
    if settings.id in there:
        ids = _texts(table, settings.id)
    else:
        ids = np.char.add("row-", np.char.zfill(np.arange(count).astype(np.str_), len(str(count))))
    matrices = {modality: _matrix(table, names) for modality, names in columns.items()}
    available: dict[str, Array] = {}
    for modality, matrix in matrices.items():
        empty = np.isnan(matrix)
        available[modality] = np.asarray(~empty.any(axis=1))
        if settings.empty == "refuse" and not available[modality].all():
            row = int(available[modality].argmin())
            names = columns[modality]
            raise DataError(
                "a cell is empty",
                key=f"column {names[int(empty[row].argmax()) if len(names) > 1 else 0]}, row {row + 1}",
                hint=f"fill it, leave the row out, or set {_KEY}.empty=missing",
            )
        matrix[~available[modality]] = 0
    groups = _texts(table, settings.group) if settings.group in there else None
    return Rows.of(ids, _labels(table, settings.label), matrices, groups=groups, available=available)


def _shown(table: pa.Table) -> str:
    return ", ".join(table.column_names[:12]) + (" …" if len(table.column_names) > 12 else "")


def _refuse_nulls(column: pa.ChunkedArray, name: str, problem: str, hint: str | None = None) -> None:
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(problem, key=f"column {name}, row {row + 1}", hint=hint)


def _texts(table: pa.Table, name: str) -> Array:
    column = table.column(name)
    _refuse_nulls(column, name, "a cell is empty")
    return np.asarray(column.cast(pa.string()).to_pylist(), dtype=np.str_)


def _labels(table: pa.Table, name: str) -> Array:
    if name not in table.column_names:
        hint = f"name the right one of its columns: {_shown(table)}"
        raise DataError(f"the table has no column {name!r}", key=f"{_KEY}.label", value=name, hint=hint)
    column = table.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _texts(table, name)
    _refuse_nulls(column, name, "a label is missing", "drop rows without a label")
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type)):
        hint = "name the column with the labels"
        raise DataError(
            "labels must be numbers or texts", key=f"{_KEY}.label", value=f"{name}: {column.type}", hint=hint
        )
    labels: Array = column.to_numpy()
    return labels


def _class_names(table: pa.Table, label: str) -> dict[int, str]:
    """Return the class names that `datasets` keeps in the metadata of a table; none without them."""
    try:
        known = json.loads((table.schema.metadata or {})[b"huggingface"])["info"]["features"][label]["names"]
    except (KeyError, TypeError, ValueError):
        return {}
    return {number: str(name) for number, name in enumerate(known)}


# Modalities


def _modality_columns(table: pa.Table, settings: TableSettings, asked: tuple[str, ...] | None) -> dict[str, list[str]]:
    """Return the columns of each modality: one of lists, or numbered ones in their order."""
    special = {settings.id, settings.label, settings.split, settings.group}
    candidates = _candidates(table, special)
    names = settings.modalities or {name: name for name in candidates}
    for modality, column in names.items():
        if column not in candidates:
            raise DataError(
                f"there is no column of lists {column!r}, and no columns {column}_0, {column}_1 …",
                key=f"{_KEY}.modalities",
                value=f"{modality}: {column}",
                hint=f"found: {', '.join(candidates) or 'none'}",
            )
    chosen = {modality: candidates[names[modality]] for modality in choose_modalities(asked, names)}
    if len(chosen) < 2:
        raise DataError(
            "a multimodal model needs at least two modalities",
            key="features.source.modalities" if asked else f"{_KEY}.modalities" if settings.modalities else None,
            value=f"modalities: {', '.join(chosen) or 'none'}; columns: {_shown(table)}",
            hint="a modality is a column of lists, or several columns with numbered names like voice_0, voice_1",
        )
    return chosen


def _candidates(table: pa.Table, special: set[str]) -> dict[str, list[str]]:
    """Return what could be modalities, with their columns."""
    columns_of: dict[str, list[str]] = {}
    numbered: dict[str, dict[int, pa.Field]] = {}
    for field in table.schema:
        if field.name in special:
            continue
        if _is_list(field.type) or (pa.types.is_string(field.type) and _begins_a_list(table.column(field.name))):
            columns_of[field.name] = [field.name]
        elif match := _NUMBERED.match(field.name):
            numbered.setdefault(match[1].rstrip(_SEPARATORS), {})[int(match[2])] = field
    for prefix, fields in numbered.items():
        # Text in one of the columns is a mistake to be named; where all of them are text, they are no modality.
        if len(fields) > 1 and prefix not in columns_of and any(_is_number(field.type) for field in fields.values()):
            columns_of[prefix] = [fields[number].name for number in sorted(fields)]
    return columns_of


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _is_list(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return bool(lists and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)))


def _begins_a_list(column: pa.ChunkedArray) -> bool:
    present = column.drop_null()
    return len(present) > 0 and str(present[0].as_py()).lstrip().startswith("[")


def _matrix(table: pa.Table, columns: list[str]) -> Array:
    """Return a modality as a matrix; values that are missing are NaN."""
    if len(columns) > 1:
        return np.column_stack([_numbers(table, name) for name in columns])
    name, column = columns[0], table.column(columns[0]).combine_chunks()
    present = column.is_valid().to_numpy(zero_copy_only=False)
    values, lengths = _parsed(name, column) if pa.types.is_string(column.type) else _flat(column)
    different = np.unique(lengths)
    if len(different) != 1 or different[0] == 0:
        raise DataError(
            "the lists of a modality must have one length",
            key=f"column {name}",
            value=", ".join(map(str, different[:5].tolist())) or "no list",
            hint="pool sequences to one vector for each row, or leave the column out with features.source.modalities",
        )
    matrix = np.full((len(column), int(different[0])), np.nan, dtype=np.float32)
    matrix[present] = values.reshape(-1, int(different[0]))
    return matrix


def _numbers(table: pa.Table, name: str) -> Array:
    """Return a column of numbers; cells that are empty are NaN."""
    try:
        numbers: Array = table.column(name).cast(pa.float32()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"a number of a modality cannot be read: {str(error).partition(chr(10))[0]}",
            key=f"column {name}",
            hint="write a number, or leave the cell empty; columns that are no modality need a name without a number",
        ) from error
    return numbers


def _flat(column: pa.Array) -> tuple[Array, Array]:
    """Return the numbers of all lists that are there, one after the other, and the length of each list."""
    column = column.drop_null()
    flat = column.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)
    return flat, pa.compute.list_value_length(column).to_numpy(zero_copy_only=False)


def _parsed(name: str, column: pa.Array) -> tuple[Array, Array]:
    """Return the same for lists that are written out, as in CSV."""
    try:
        lists: list[Any] = json.loads(f"[{','.join(column.drop_null().to_pylist())}]")
        return np.concatenate(lists, dtype=np.float32), np.fromiter(map(len, lists), np.int64)
    except (ValueError, TypeError, RecursionError) as error:
        hint = "write each list as [0.1, 0.2, 0.3], or each number into a column of its own"
        raise DataError(f"a list cannot be read: {error}", key=f"column {name}", hint=hint) from error


# Splits


def _by_split(table: pa.Table, name: str, rows: Rows) -> dict[str, Rows]:
    """Return the rows of each split; all of them as train where the table has no such column."""
    if name not in table.column_names:
        return {"train": rows}
    texts = _texts(table, name)
    names = {text: SPLIT_ALIASES.get(text.lower(), text.lower()) for text in np.unique(texts).tolist()}
    for text, split in names.items():
        if split not in SPLITS:
            raise DataError(
                "there is no such split",
                key=f"column {name}, row {int(np.argmax(texts == text)) + 1}",
                value=text,
                hint=f"a split is one of {', '.join(SPLITS)}",
            )
    present = [split for split in SPLITS if split in names.values()]
    return {split: rows.take(np.isin(texts, [t for t, s in names.items() if s == split])) for split in present}


def _with_all_splits(
    splits: dict[str, Rows], settings: TableSettings, seed: int
) -> tuple[dict[str, Rows], dict[str, Any]]:
    """Take test and valid from train where the table has none; return notes on what was drawn."""
    notes: dict[str, Any] = {}
    if set(splits) == {"train"}:
        splits["train"], splits["test"] = carve_share(
            splits["train"], settings.test_share, seed, "test", f"{_KEY}.test_share"
        )
        notes["test"] = f"{len(splits['test'])} rows drawn by group: the table has no splits"
    if "train" in splits and "valid" not in splits:
        splits["train"], splits["valid"] = carve_share(
            splits["train"], settings.valid_share, seed, "valid", f"{_KEY}.valid_share"
        )
        notes["valid"] = f"{len(splits['valid'])} training rows drawn by group: the table has no valid split"
    return {split: splits[split] for split in SPLITS if split in splits}, notes


SOURCE = Source(read, recognises=recognises)

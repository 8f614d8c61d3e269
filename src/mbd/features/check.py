"""What has to be true of feature data before anything is written, each with an error of its own.

The order makes errors readable: shapes first, then ids, then values, then relations between splits.
"""

import math
from itertools import combinations

import numpy as np

from mbd.errors import DataError, naming
from mbd.features.rows import Collection, Rows, kind_of
from mbd.formats.features import Shape
from mbd.params.features import FeaturesSettings
from mbd.tensors import Array, release

_AT_ONCE = 1 << 22
"""numbers that are looked at before their memory is given back"""
_APART = {
    "id": "an id names one row of the whole data set: put the split into it, as train-7",
    "group": "no speaker or video may be in two splits; if the part of the id taken as its group is not one, set "
    "features.source.group_pattern",
}


def check_collection(collection: Collection, params: FeaturesSettings) -> None:
    """Raise the first thing that is wrong with `collection`."""
    with naming(", ".join(collection.files) or None):
        _check_splits_present(collection)
        for split, rows in collection.splits.items():
            _check_shape(split, rows, collection.shapes)
            _check_ids(split, rows)
            _check_values(split, rows)
            _check_labels(split, rows, collection, params.label_range)
        _check_disjoint(collection)


def _check_splits_present(collection: Collection) -> None:
    for split in ("train", "valid", "test"):
        if split not in collection.splits:
            raise DataError(
                f"the split {split} is missing",
                value=f"there is {', '.join(collection.splits) or 'none'}",
                hint="a data set needs train, valid and test; set some groups (speakers, videos) aside for it",
            )
    for split, rows in collection.splits.items():
        if not len(rows):
            raise DataError(f"the split {split} is empty", key=split, hint="give it at least one row")
    if len(collection.modalities) < 2:
        raise DataError(
            "a multimodal model needs at least two modalities",
            value=", ".join(collection.modalities) or "none",
            hint="check features.source.modalities, and that the source has arrays or columns of two modalities",
        )


def _check_shape(split: str, rows: Rows, shapes: dict[str, Shape]) -> None:
    missing = set(shapes) ^ set(rows.features)
    if missing:
        raise DataError(
            f"the modality {sorted(missing)[0]} is in some splits and missing in others",
            key=split,
            value=", ".join(rows.features),
            hint="every split needs the same modalities; name them in features.source.modalities",
        )
    for modality, matrix in rows.features.items():
        key = f"{split}_{modality}"
        shape = shapes[modality]
        if matrix.shape[1:] != shape.size or matrix.dtype.name != shape.dtype:
            raise DataError(
                f"the dimension of {modality} differs between splits",
                key=key,
                value=f"{_size(matrix.shape[1:])} {matrix.dtype}, elsewhere {_size(shape.size)} {shape.dtype}",
                hint="extract all splits with the same encoder, and fill up sequences to the same length",
            )
        if len(matrix) != len(rows):
            raise DataError(
                "there must be as many feature rows as ids",
                key=key,
                value=f"{len(matrix)} and {len(rows)}",
                hint="give a row for every id; where the modality is missing, one of zeros marked as unavailable",
            )
        if shape.has_lengths:
            _check_lengths(key, rows.lengths[modality], rows.available[modality], shape.size[0])
    if len(rows.labels) != len(rows):
        sizes = f"{len(rows.labels)} and {len(rows)}"
        raise DataError("there must be as many labels as ids", key=f"{split}_labels", value=sizes)


def _size(size: tuple[int, ...]) -> str:
    return " × ".join(map(str, size))


def _check_lengths(key: str, lengths: Array, available: Array, longest: int) -> None:
    if lengths.shape != available.shape or lengths.dtype.kind not in "iu":
        raise DataError(
            "there must be one length, a whole number, for each row",
            key=f"{key}_lengths",
            value=f"{lengths.shape} {lengths.dtype} for {len(available)} rows",
        )
    wrong = available & ((lengths < 1) | (lengths > longest))
    if wrong.any():
        raise DataError(
            f"{int(wrong.sum())} lengths are not between 1 and {longest}, the number of positions in the array",
            key=f"{key}_lengths",
            value=f"{lengths[wrong][0]} in row {int(wrong.argmax())}",
            hint=f"mark rows that lack the modality as unavailable ({key}_available)",
        )


def _check_ids(split: str, rows: Rows) -> None:
    unique, counts = np.unique(rows.ids, return_counts=True)
    if (repeated := unique[counts > 1]).size:
        raise DataError(
            f"{repeated.size} ids occur more than once in the split {split}",
            key=f"{split}_ids",
            value=repeated[0],
            hint="ids must be unique: a deletion for a subject has to find every row once",
        )
    if (rows.ids == "").any():
        raise DataError("an id is empty", key=f"{split}_ids", value=f"row {int((rows.ids == '').argmax())}")


def _check_values(split: str, rows: Rows) -> None:
    for modality, matrix in rows.features.items():
        if not all_finite(matrix):
            place = tuple(np.argwhere(~np.isfinite(matrix))[0].tolist())
            raise DataError(
                f"{int((~np.isfinite(matrix)).sum())} feature values are NaN or infinite",
                key=f"{split}_{modality}",
                value=f"{matrix[place]} in row {place[0]} (id {rows.ids[place[0]]}), "
                + ("column" if len(place) == 2 else "position")
                + f" {', '.join(map(str, place[1:]))}",
                hint="repair them, or set these rows to zero and mark them as unavailable (.npz: an array "
                f"{split}_{modality}_available of booleans)",
            )
        if kind_of(matrix) == "tokens" and (matrix < 0).any():
            raise DataError(
                "token ids are counted from 0", key=f"{split}_{modality}", value=f"{matrix.min()}", hint="add an offset"
            )
    nothing = ~np.any(list(rows.available.values()), axis=0)
    if nothing.any():
        raise DataError(
            f"{int(nothing.sum())} rows have no modality at all",
            key=split,
            value=f"id {rows.ids[nothing][0]}",
            hint="drop these rows: there is nothing to predict from",
        )


def _check_labels(split: str, rows: Rows, collection: Collection, label_range: tuple[float, float]) -> None:
    labels, key = rows.labels, f"{split}_labels"
    if not all_finite(labels):
        raise DataError("a label is NaN or infinite", key=key, value=f"id {rows.ids[~np.isfinite(labels)][0]}")
    if collection.task == "classification":
        low, high = 0.0, float(len(collection.classes) - 1)
        hint = "classes are numbered from 0; set features.source.task=regression if these are not classes"
    else:
        (low, high), hint = label_range, "set features.label_range=[low, high] if these labels are right"
    outside = (labels < low) | (labels > high)
    if outside.any():
        raise DataError(
            f"{int(outside.sum())} labels lie outside {low:g} … {high:g}",
            key=key,
            value=f"{labels[outside][0]} (id {rows.ids[outside][0]})",
            hint=hint,
        )


def _check_disjoint(collection: Collection) -> None:
    ids = {split: rows.ids for split, rows in collection.splits.items()}
    groups = {split: np.unique(rows.groups) for split, rows in collection.splits.items()}
    for first, second in combinations(collection.splits, 2):
        for what, names in (("id", ids), ("group", groups)):
            common = np.intersect1d(names[first], names[second], assume_unique=True)
            if len(common):
                raise DataError(
                    f"the splits {first} and {second} share {len(common)} {what}{'s' * (len(common) > 1)}",
                    key=f"{first}_{what}s",
                    value=common[0],
                    hint=_APART[what],
                )


def all_finite(array: Array) -> bool:
    """Return whether no value is NaN or infinite, without a mask of the whole array where possible."""
    if array.dtype.kind != "f":
        return True
    step = max(_AT_ONCE // max(math.prod(array.shape[1:]), 1), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(array), step):
            block = array[start : start + step]
            # A sum is finite only if every term is; one of finite terms can overflow, and is looked at closely.
            if not (np.isfinite(block.sum()) or np.isfinite(block).all()):
                return False
            release(array)
    return True

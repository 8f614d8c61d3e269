"""Labels as models need them: scores as float32, classes as consecutive numbers from 0 with a name each.

Texts are classes. Whole numbers are classes unless `features.source.task` says otherwise. Classes that are not numbered
0, 1, 2 … (from 1 on, or with gaps) are numbered again in ascending order; their old numbers become their names.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mbd.errors import DataError
from mbd.features.rows import Collection, Rows
from mbd.formats.features import Task
from mbd.tensors import Array

MOST_CLASSES = 1000


def labelled(
    name: str,
    splits: Mapping[str, Rows],
    task: Task | None,
    names: Mapping[int, str] | None = None,
    *,
    notes: Mapping[str, Any],
    **more: Any,
) -> Collection:
    """Return the collection of these splits, with labels of the right type and notes about them.

    Args:
        name: Of the collection.
        splits: Rows whose labels are texts or numbers.
        task: What the labels are; None: texts and whole numbers of an integer type are classes, others are scores.
        names: The name of each class number, where the file has them.
        notes: Those of the source; notes about labels follow them.
        **more: Further fields of the collection.

    """
    labels = np.concatenate([rows.labels for rows in splits.values()])
    text = labels.dtype.kind in "US"
    if text and any(rows.labels.dtype.kind not in "US" for rows in splits.values()):
        raise DataError("labels are texts in some splits and numbers in others", key="labels")
    given, task = task, task or ("classification" if text or labels.dtype.kind in "iub" else "regression")
    if task == "classification":
        numbers, classes, about = _numbered(labels, names or {})
        seen = np.unique(numbers[: len(splits["train"].labels)]) if next(iter(splits)) == "train" else ()
        if len(seen) and len(seen) < len(classes):
            about["classes without a training row"] = [c for n, c in enumerate(classes) if n not in seen]
    elif text:
        hint = "leave features.source.task unset, or set it to classification"
        raise DataError("the labels are texts, not scores", value=str(labels[0]), hint=hint)
    else:
        numbers, classes, about = labels.astype(np.float32), (), {}
        if not given and (labels >= 0).all() and (labels == labels.round()).all():
            about["labels"] = (
                "whole numbers, taken as scores; set features.source.task=classification if they are classes"
            )
    ends = np.cumsum([len(rows.labels) for rows in splits.values()])[:-1]
    parts = zip(splits.items(), np.split(numbers, ends), strict=True)
    rows_of = {split: replace(rows, labels=part) for (split, rows), part in parts}
    return Collection(name, task, rows_of, classes, notes={**notes, **about}, **more)


def _numbered(labels: Array, names: Mapping[int, str]) -> tuple[Array, tuple[str, ...], dict[str, Any]]:
    """Return class numbers from 0 without gaps, the name of each class, and a note where numbers have changed."""
    whole = labels.dtype.kind != "f" or (np.isfinite(labels).all() and (labels == labels.round()).all())
    values, numbers = np.unique(labels, return_inverse=True)
    if not whole or len(values) > MOST_CLASSES:
        raise DataError(
            f"classes must be texts or whole numbers, {MOST_CLASSES} at the most",
            key="labels",
            value=f"{values[0]} to {values[-1]}, {len(values)} different ones",
            hint="set features.source.task=regression if these are scores",
        )
    if labels.dtype.kind in "US":
        return numbers.astype(np.int64), tuple(map(str, values)), {}
    values = values.astype(np.int64)
    classes = tuple(names.get(c, str(c)) for c in values.tolist())
    notes: dict[str, Any] = {}
    if not np.array_equal(values, np.arange(len(values))):
        notes["classes"] = f"numbered {values[0]} to {values[-1]} in the file, 0 to {len(values) - 1} here"
        if gaps := sorted(set(range(values[0], values[-1])) - set(values.tolist()))[:10]:
            notes["class numbers that no row has"] = gaps
    return numbers.astype(np.int64), classes, notes

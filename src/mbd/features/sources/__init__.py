"""Where features come from: one module for each built-in source; packages add others (`mbd.sources`).

Labels become scores as float32, or classes as consecutive numbers from 0 with a name each (:func:`labelled`). Texts are
classes. Whole numbers are classes unless `features.source.task` says otherwise. Classes that are not numbered 0, 1, 2 …
(from 1 on, or with gaps) are numbered again in ascending order; their old numbers become their names.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from mbd.errors import DataError, naming
from mbd.features.rows import Collection, Rows
from mbd.formats.features import Task
from mbd.params.features import FeaturesSettings, SourceSettings
from mbd.registry import SOURCES
from mbd.tensors import Array

_OTHER_FILES = {
    (".xlsx", ".xls", ".ods"): "it looks like a spreadsheet: save it as CSV",
    (".json", ".jsonl"): "it looks like JSON: save it as CSV or parquet",
    (".npy",): "it looks like one array: save the arrays of all splits and modalities with numpy.savez",
    (".pt", ".pth", ".ckpt", ".safetensors"): "it looks like the weights of a model: `mbd import --weights` takes them",
    (".wav", ".mp3", ".mp4", ".avi", ".png", ".jpg"): "it looks like raw media: list such files in a CSV (kind media)",
}
"""suffixes of files that are no feature data → what to do about them"""


@dataclass(frozen=True)
class Source:
    """A kind of feature data: how it is recognised and read."""

    read: Callable[[FeaturesSettings], Collection]
    """reads what `features.source` describes"""
    recognises: Callable[[Path], bool] | None = None
    """whether a path looks like this kind of data; None: it reads no path"""
    settings: type[BaseModel] | None = None
    """of `features.source.options`; built-in sources have sections of their own"""


def read_source(params: FeaturesSettings) -> Collection:
    """Read the source that the parameters name; errors name its path, unless they name another file."""
    with naming(params.source.path and Path(params.source.path)):
        return SOURCES.get(kind_of(params.source)).read(params)


def kind_of(source: SourceSettings) -> str:
    """Return the kind of a source: as set, else what its path looks like.

    Raises:
        DataError: No kind, or more than one, recognises the path; or one recognises it, but not the kind that is set.

    """
    if source.path is None:
        return source.kind or "synthetic"
    path = Path(source.path)
    fitting = [name for name in SOURCES.names() if _recognises(name, path)] if path.exists() else []
    if source.kind in fitting or (source.kind and not fitting):
        return source.kind
    if not source.kind and len(fitting) == 1:
        return fitting[0]
    if not path.exists():
        raise DataError(
            "the file is missing",
            file=path,
            key="features.source.path",
            hint=f"a path is taken from the current folder, {Path.cwd()}",
        )
    raise DataError(
        f"this is not of the kind {source.kind}" if source.kind else "what kind of data this is cannot be recognised",
        file=path,
        key="features.source.kind",
        hint=f"it looks like {' or '.join(fitting)}: set features.source.kind={fitting[0]}"
        if fitting
        else _other_file(path),
    )


def _other_file(path: Path) -> str:
    for suffixes, hint in _OTHER_FILES.items():
        if path.suffix.lower() in suffixes:
            return hint
    kinds = ", ".join(name for name in SOURCES.names() if name != "synthetic")
    return f"set it to one of {kinds}; docs/feature-data.md shows a file of each"


def choose_modalities(wanted: tuple[str, ...] | None, there: Iterable[str], more: str = "") -> tuple[str, ...]:
    """Return the modalities of `features.source.modalities`, by default all that are there; refuse any other.

    `more` is what else to say of it in the error.
    """
    known = tuple(there)
    for modality in wanted or ():
        if modality not in known:
            raise DataError(
                f"the file has no modality {modality!r}{more}",
                key="features.source.modalities",
                hint=f"it has {', '.join(known) or 'none'}",
            )
    return known if wanted is None else wanted


def _recognises(kind: str, path: Path) -> bool:
    try:
        recognises = SOURCES.get(kind).recognises
    except ModuleNotFoundError:  # a source whose packages are not installed
        return False
    return recognises is not None and recognises(path)


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
    """Return the collection of these splits, with labels of the right type; notes about them follow those given.

    Without a task, texts and whole numbers of an integer type are classes, others are scores. `names` has the name of
    each class number, where the file has them; `more` are further fields of the collection.
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

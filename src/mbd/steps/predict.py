"""`predict`: score the rows of one split with any model, and write a table.

A row is scored from what it has: its own availability bits and, with `available`, only those modalities. A row that
has none of them keeps its line with an empty prediction, and the summary counts it. Columns:

    id, used, prediction, sign                     regression; sign is negative or non-negative, as Acc2 reads it
    id, used, prediction, p_CLASS …                classification; prediction is the most probable class

The table is CSV, or Parquet where the name of the file ends with `.parquet`.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.evaluation.candidates import seed_folders
from mbd.features.contract import Split
from mbd.files import write_file
from mbd.model.compatible import open_for, refuse_foreign
from mbd.model.predictor import Model, load
from mbd.steps.step import reads
from mbd.tensors import Array

_BATCH = 8192


@dataclass(frozen=True)
class PredictResult:
    """Predictions that were written."""

    rows: int
    without_prediction: int
    """rows that have none of the modalities"""
    split: str
    modalities: tuple[str, ...]
    """that were used where a row has them"""


@reads("model_folder", data="features")
def run(
    features: Path, model_folder: Path, out: Path, *, split: str = "test", available: Sequence[str] | None = None
) -> PredictResult:
    """Write the predictions for `split` to `out`."""
    if out.is_dir():
        raise UsageError("the output must be a file, not a folder", key="--out", value=out)
    seeds = seed_folders(model_folder)
    if seeds and seeds != [model_folder]:
        raise UsageError(
            "this folder holds models of several seeds, and rows are scored by one",
            key="--model",
            value=model_folder,
            hint=f"choose one of {', '.join(map(str, seeds))}",
        )
    model = load(model_folder)
    chosen = _chosen(model, available)
    data = open_for(model.record, features)
    rows = data.split(split)
    there = {m: rows.available[m] for m in chosen}
    some = np.any(list(there.values()), axis=0)
    if not some.any():
        raise DataError(
            "no row has any of the modalities to predict from",
            file=features,
            key="--available",
            value=", ".join(chosen),
            hint=f"the model takes {', '.join(model.modalities)}",
        )
    columns = _columns(_scores(model, rows, there, some), model.record.classes)
    form = _parquet if out.suffix == ".parquet" else _csv
    write_file(out, form({"id": rows.ids, "used": _used(there)}, columns, some))
    return PredictResult(len(rows), int((~some).sum()), split, chosen)


def _chosen(model: Model, available: Sequence[str] | None) -> tuple[str, ...]:
    if available is None:
        return tuple(model.modalities)
    if not available:
        raise UsageError("no modality was named", key="--available", hint=f"name some of {', '.join(model.modalities)}")
    refuse_foreign(model.record, available)
    return tuple(m for m in model.modalities if m in available)


def _scores(model: Model, split: Split, there: Mapping[str, Array], some: Array) -> Array:
    """Return the scores of each row that has any of the modalities, and zeros for the others."""
    scores = np.zeros((len(split), *([len(model.record.classes)] if model.record.classes else [])))
    for start in range(0, len(split), _BATCH):
        own = start + np.flatnonzero(some[start : start + _BATCH])
        if own.size:
            inputs = split.take(own).inputs(there)
            scores[own] = model.predict(inputs, {m: bits[own] for m, bits in there.items()})
    return scores


def _used(there: Mapping[str, Array]) -> Array:
    """Name the modalities that each row was scored from: one name for each pattern, looked up by its bits."""
    bits = np.stack(list(there.values()), axis=1)
    patterns, which = np.unique(bits, axis=0, return_inverse=True)
    names = ["+".join(m for m, bit in zip(there, pattern, strict=True) if bit) for pattern in patterns]
    return np.array(names)[which.ravel()]


def _columns(scores: Array, classes: tuple[str, ...]) -> dict[str, Array]:
    """Return the columns that say what was predicted, by name."""
    # Six decimals: what lies below depends on the number of threads.
    scores = np.round(scores, 6) + 0.0
    if not classes:
        return {"prediction": scores, "sign": np.where(scores >= 0, "non-negative", "negative")}
    shares = {f"p_{name}": scores[:, k] for k, name in enumerate(classes)}
    return {"prediction": np.array(classes)[scores.argmax(1)]} | shares


def _csv(rows: dict[str, Array], columns: dict[str, Array], some: Array) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*rows, *columns])
    for start in range(0, len(some), _BATCH):
        own = slice(start, start + _BATCH)
        cells = [np.where(some[own], column[own].astype(np.str_), "").tolist() for column in columns.values()]
        writer.writerows(zip(*(names[own].tolist() for names in rows.values()), *cells, strict=True))
    return text.getvalue()


def _parquet(rows: dict[str, Array], columns: dict[str, Array], some: Array) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 -- part of an extra, and slow to import
    from pyarrow import parquet  # noqa: PLC0415

    arrays = {name: pa.array(column, mask=~some) for name, column in columns.items()}
    buffer = io.BytesIO()
    parquet.write_table(pa.table({name: pa.array(names) for name, names in rows.items()} | arrays), buffer)
    return buffer.getvalue()

"""`predict`: score the rows of one split with any model, and write a table.

A row is scored from what it has: its own availability bits and, with `available`, only those modalities. A row that
has none of them keeps its line with an empty prediction, and the summary counts it. Columns:

    id, used, prediction, sign                     regression; sign is negative or non-negative, as Acc2 reads it
    id, used, prediction, p_CLASS …                classification; prediction is the most probable class

The table is CSV, or Parquet where the name of the file ends with `.parquet`.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
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
class _Scored:
    """Rows with their scores; where `some` is false there was nothing to predict from."""

    ids: Array
    used: Array
    some: Array
    scores: Array


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
    scored = _joined(list(_batches(model, data.split(split), chosen)))
    if not scored.some.any():
        raise DataError(
            "no row has any of the modalities to predict from",
            file=features,
            key="--available",
            value=", ".join(chosen),
            hint=f"the model takes {', '.join(model.modalities)}",
        )
    columns = _columns(scored.scores, model.record.classes)
    write_file(out, _parquet(scored, columns) if out.suffix == ".parquet" else _csv(scored, columns))
    rows, empty = len(scored.ids), int((~scored.some).sum())
    return PredictResult(rows, empty, split, chosen)


def _chosen(model: Model, available: Sequence[str] | None) -> tuple[str, ...]:
    if available is None:
        return tuple(model.modalities)
    if not available:
        raise UsageError("no modality was named", key="--available", hint=f"name some of {', '.join(model.modalities)}")
    refuse_foreign(model.record, available)
    return tuple(m for m in model.modalities if m in available)


def _batches(model: Model, split: Split, chosen: tuple[str, ...]) -> Iterator[_Scored]:
    width = [len(model.record.classes)] if model.record.classes else []
    for start in range(0, len(split), _BATCH):
        rows = split.take(slice(start, start + _BATCH))
        there = {m: rows.available[m] for m in chosen}
        some = np.any(list(there.values()), axis=0)
        scores = np.zeros((len(rows), *width))
        if some.any():
            inputs = {name: x[some] for name, x in rows.inputs(chosen).items()}
            scores[some] = model.predict(inputs, {m: bits[some] for m, bits in there.items()})
        yield _Scored(rows.ids, _used(there), some, scores)


def _used(there: dict[str, Array]) -> Array:
    """Name the modalities that each row was scored from: one name for each pattern, looked up by its bits."""
    bits = np.stack(list(there.values()), axis=1)
    patterns, which = np.unique(bits, axis=0, return_inverse=True)
    names = ["+".join(m for m, bit in zip(there, pattern, strict=True) if bit) for pattern in patterns]
    return np.array(names)[which.ravel()]


def _joined(parts: list[_Scored]) -> _Scored:
    return _Scored(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(_Scored)))


def _columns(scores: Array, classes: tuple[str, ...]) -> dict[str, Array]:
    """Return the columns that say what was predicted, by name."""
    # Six decimals: what lies below depends on the number of threads.
    scores = np.round(scores, 6) + 0.0
    if not classes:
        return {"prediction": scores, "sign": np.where(scores >= 0, "non-negative", "negative")}
    shares = {f"p_{name}": scores[:, k] for k, name in enumerate(classes)}
    return {"prediction": np.array(classes)[scores.argmax(1)]} | shares


def _csv(scored: _Scored, columns: dict[str, Array]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["id", "used", *columns])
    for start in range(0, len(scored.ids), _BATCH):
        rows = slice(start, start + _BATCH)
        cells = [np.where(scored.some[rows], column[rows].astype(np.str_), "").tolist() for column in columns.values()]
        writer.writerows(zip(scored.ids[rows].tolist(), scored.used[rows].tolist(), *cells, strict=True))
    return text.getvalue()


def _parquet(scored: _Scored, columns: dict[str, Array]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415 -- part of an extra, and slow to import
    from pyarrow import parquet  # noqa: PLC0415

    arrays = {name: pa.array(column, mask=~scored.some) for name, column in columns.items()}
    buffer = io.BytesIO()
    parquet.write_table(pa.table({"id": pa.array(scored.ids), "used": pa.array(scored.used), **arrays}), buffer)
    return buffer.getvalue()

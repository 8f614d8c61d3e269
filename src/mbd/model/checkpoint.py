"""A model folder: `model.safetensors` (weights) and `model.json` (:class:`~mbd.formats.model.ModelRecord`)."""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from mbd import tombstones
from mbd.errors import DataError
from mbd.files import sha256_file, write_file
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.model import ModelRecord, TensorRecord
from mbd.tensors import Array, open_tensors, save_tensors


def save_model(folder: Path, record: ModelRecord, tensors: Mapping[str, Array]) -> ModelRecord:
    """Write a model into `folder`; return the record with the digest of the weights in it."""
    if set(record.tensors) != set(tensors):
        raise ValueError(f"the record and the weights differ in {sorted(set(record.tensors) ^ set(tensors))}")
    record = record.model_copy(update={"sha256": save_tensors(folder / WEIGHTS, tensors)})
    write_file(folder / MODEL, record.to_json())
    return record


def describe(tensor: Array, sees: tuple[str, ...], **more: object) -> TensorRecord:
    """Return the record of one tensor; `more` is belongs_to and columns."""
    return TensorRecord.model_validate({"shape": tensor.shape, "dtype": str(tensor.dtype), "sees": sees, **more})


def kept_columns(entry: TensorRecord, gone: Collection[str]) -> Array:
    """Return for each column of a tensor (its last axis) whether it reads none of the modalities `gone`."""
    kept = np.ones(entry.shape[-1] if entry.shape else 1, bool)
    for span in entry.columns:
        if span.reads in gone:
            kept[span.start : span.stop] = False
    return kept


def load_model(folder: Path, *, verify: bool = True) -> tuple[ModelRecord, dict[str, Array]]:
    """Read a model folder; with `verify`, compare the digest of the weights with the record."""
    record = ModelRecord.read(folder / MODEL, "model record (model.json)", "`mbd train` makes a model folder")
    tombstones.refuse([record.sha256], folder / WEIGHTS, "use the model that has forgotten it")
    tensors = open_tensors(folder / WEIGHTS)
    for name, entry in record.tensors.items():
        found = tensors.get(name)
        if found is None or found.shape != entry.shape or str(found.dtype) != entry.dtype:
            described = "missing" if found is None else f"{found.shape} {found.dtype}"
            raise DataError(
                "the weights are not those that the record describes",
                file=folder / WEIGHTS,
                key=name,
                value=f"{described}, recorded {entry.shape} {entry.dtype}",
            )
    if extra := sorted(set(tensors) - set(record.tensors)):
        raise DataError("the weights hold a tensor that the record does not list", file=folder / WEIGHTS, key=extra[0])
    if verify and (digest := sha256_file(folder / WEIGHTS)) != record.sha256:
        raise DataError(
            "the weights are not the ones that the record lists",
            file=folder / WEIGHTS,
            value=f"sha256 {digest}, recorded {record.sha256}",
            hint="fetch or train the model again",
        )
    return record, dict(tensors)

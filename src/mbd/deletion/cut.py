"""The structural cut: removes the tensors of a modality, and every input column that reads it.

Which tensors and columns these are is read from the provenance in the model's record (`belongs_to` and `columns`), not
from names, so the cut is correct for any backbone whose record is; in a module of one's own they are found by probing
(:mod:`mbd.deletion.module`). The result has the shapes of a model trained without
the modality, and does not take it as input. What the remaining values have seen (`sees`) does not change: a cut removes
inputs and outputs, not what training left in shared weights.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.formats.model import ColumnRange, ModelRecord, TensorRecord
from mbd.model.compatible import refuse_foreign
from mbd.registry import BACKBONES
from mbd.tensors import Array


def cut(
    record: ModelRecord, tensors: Mapping[str, Array], modalities: Sequence[str]
) -> tuple[ModelRecord, dict[str, Array]]:
    """Return the model without `modalities`; the digest in its record stays empty until it is saved."""
    if set(record.tensors) != set(tensors):
        raise ValueError(f"the record and the weights differ in {sorted(set(record.tensors) ^ set(tensors))}")
    gone = requested(record, modalities)
    if BACKBONES.is_path(record.backbone):
        from mbd.deletion.module import cut_module  # noqa: PLC0415 -- imports torch

        found = cut_module(record, tensors, gone)
        return found.record, found.tensors
    _refuse_unread(record, gone)
    shared = {name: entry for name, entry in record.tensors.items() if entry.belongs_to not in gone}
    smaller = record.model_copy(
        update={
            "modalities": {m: dim for m, dim in record.modalities.items() if m not in gone},
            "revoked": (*record.revoked, *gone),
            "tensors": {name: _cut_entry(name, entry, gone) for name, entry in shared.items()},
            "sha256": "",
        }
    )
    return smaller, cut_arrays(record, tensors, gone)


def requested(record: ModelRecord, modalities: Sequence[str]) -> tuple[str, ...]:
    """Return the modalities to delete in the model's order, if each can be deleted and one is left."""
    refuse_foreign(record, modalities)
    gone = tuple(m for m in record.inputs if m in modalities)
    if not gone:
        raise UsageError("no modality to delete was named", hint=f"the model takes {', '.join(record.inputs)}")
    if len(gone) == len(record.inputs):
        raise UsageError(
            "a model without any modality cannot predict: at least one must be left",
            value=", ".join(gone),
            hint="withdraw the whole model instead",
        )
    return gone


def cut_arrays(record: ModelRecord, arrays: Mapping[str, Array], modalities: Sequence[str]) -> dict[str, Array]:
    """Return what is left of arrays that have the names and shapes of the record's tensors (all of them or some)."""
    left = {}
    for name, array in arrays.items():
        entry = record.tensors[name]
        if entry.belongs_to in modalities:
            continue
        reads = any(span.reads in modalities for span in entry.columns)
        left[name] = np.ascontiguousarray(array[..., kept_columns(entry, modalities)]) if reads else array
    return left


def kept_columns(entry: TensorRecord, modalities: Sequence[str]) -> Array:
    """Return for each column of a tensor (its last axis) whether it stays."""
    kept = np.ones(entry.shape[-1], bool)
    for span in entry.columns:
        if span.reads in modalities:
            kept[span.start : span.stop] = False
    return kept


def _refuse_unread(record: ModelRecord, gone: tuple[str, ...]) -> None:
    """Refuse a model whose record does not say which columns read a modality: they would be left in."""
    read = {span.reads for entry in record.tensors.values() for span in entry.columns}
    for modality in gone:
        if modality not in read:
            raise DataError(
                f"the record lists no input columns that read {modality}, so nothing can be cut out of this model",
                key=modality,
                hint=_OTHER_METHODS,
            )


def _cut_entry(name: str, entry: TensorRecord, gone: tuple[str, ...]) -> TensorRecord:
    if not any(span.reads in gone for span in entry.columns):
        return entry
    _refuse_impossible(name, entry)
    kept = kept_columns(entry, gone)
    moved = np.concatenate([[0], np.cumsum(kept)])
    columns = tuple(
        ColumnRange(start=int(moved[span.start]), stop=int(moved[span.stop]), reads=span.reads)
        for span in entry.columns
        if span.reads not in gone
    )
    return entry.model_copy(update={"shape": (*entry.shape[:-1], int(kept.sum())), "columns": columns})


def _refuse_impossible(name: str, entry: TensorRecord) -> None:
    """Refuse columns outside the tensor, and columns that read two modalities: they cannot be removed."""
    spans = sorted(entry.columns, key=lambda span: (span.start, span.stop))
    width = entry.shape[-1] if entry.shape else 0
    outside = [span for span in spans if not 0 <= span.start <= span.stop <= width]
    overlapping = [other for one, other in pairwise(spans) if other.start < one.stop]
    for span, why in [(s, f"the tensor has {width}") for s in outside] + [(s, "others overlap") for s in overlapping]:
        raise DataError(
            f"the record says that columns {span.start} … {span.stop - 1} read {span.reads}, but {why}: "
            "nothing can be cut",
            key=name,
            hint=_OTHER_METHODS,
        )


_OTHER_METHODS = "use deletion.method=exact, or train again without it"

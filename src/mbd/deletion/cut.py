"""The structural cut: a model without all that exists for a modality alone.

How it is made is the backbone's: by the record (below), or by probing (:mod:`mbd.deletion.module`). By the record: the
tensors of the modality go, and every input column that reads it. Which these are is read from the provenance in the
model's record (`belongs_to` and `columns`), not from names, so the cut is correct for any backbone whose record is. The
result has the shapes of a model trained without the modality, and does not take it as input. What the remaining values
have seen (`sees`) does not change: a cut removes inputs and outputs, not what training left in shared weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.features.contract import Split
from mbd.formats.model import ColumnRange, ModelRecord, TensorRecord
from mbd.model.checkpoint import kept_columns
from mbd.model.compatible import refuse_foreign
from mbd.registry import BACKBONES
from mbd.tensors import Array


@dataclass(frozen=True)
class Cut:
    """A model without some modalities."""

    record: ModelRecord
    """its digest stays empty until the model is saved"""
    tensors: dict[str, Array]
    removed: tuple[str, ...]
    """tensors that are gone, or zero as a whole"""
    narrower: Mapping[str, int]
    """for each tensor that is left in part, how many of its columns are gone; of a module, of its numbers"""
    follow: Callable[[Mapping[str, Array]], dict[str, Array]]
    """returns what is left of values by entry of the weights before"""
    zeroed: Mapping[str, Array] = field(default_factory=dict)
    """for each tensor, the flat positions that were set to zero"""
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """further ones, for the record of the deletion"""

    def described(self, before: ModelRecord) -> dict[str, Any]:
        """Return what the cut removed, for the record of the deletion."""
        sizes = [sum(int(np.prod(entry.shape)) for entry in r.tensors.values()) for r in (before, self.record)]
        return {
            "tensors_removed": list(self.removed),
            "columns_removed": dict(self.narrower),
            "numbers_before": sizes[0],
            "numbers_after": sizes[1] - sum(len(positions) for positions in self.zeroed.values()),
            **self.facts,
        }


def cut_model(
    record: ModelRecord, tensors: Mapping[str, Array], modalities: Sequence[str], rows: Split | None = None
) -> Cut:
    """Return the model without `modalities`, as its backbone cuts it.

    Args:
        record: Of the model.
        tensors: Its weights.
        modalities: What goes.
        rows: Where the result is to be used as it is: rows from which statistics that have seen the modalities are
            computed again, and on which the predictions of the model before and after are compared.

    """
    if set(record.tensors) != set(tensors):
        raise ValueError(f"the record and the weights differ in {sorted(set(record.tensors) ^ set(tensors))}")
    gone, by_backbone = requested(record, modalities), BACKBONES.get(record.backbone).cut
    if by_backbone is None:
        raise UsageError(
            f"nothing can be cut out of a {record.backbone} model", key="model.backbone", hint=_OTHER_METHODS
        )
    return by_backbone(record, tensors, gone, rows)


def cut(
    record: ModelRecord, tensors: Mapping[str, Array], modalities: Sequence[str]
) -> tuple[ModelRecord, dict[str, Array]]:
    """Return the record and the weights of the model without `modalities`."""
    shortened = cut_model(record, tensors, modalities)
    return shortened.record, shortened.tensors


def cut_by_record(
    record: ModelRecord, tensors: Mapping[str, Array], gone: Sequence[str], rows: Split | None = None
) -> Cut:
    """Cut a model by what its record says of each tensor; no number changes, so `rows` are not needed."""
    del rows
    refuse_unread(record, gone)
    left = {n: _cut_entry(n, entry, gone) for n, entry in record.tensors.items() if entry.belongs_to not in gone}
    smaller = record.model_copy(
        update={
            "modalities": {m: dim for m, dim in record.modalities.items() if m not in gone},
            "revoked": (*record.revoked, *gone),
            "tensors": left,
            "sha256": "",
        }
    )
    return Cut(
        record=smaller,
        tensors=cut_arrays(record, tensors, gone),
        removed=tuple(sorted(set(record.tensors) - set(left))),
        narrower={
            name: record.tensors[name].shape[-1] - entry.shape[-1]
            for name, entry in left.items()
            if entry.shape != record.tensors[name].shape
        },
        follow=lambda values: cut_arrays(record, values, gone),
    )


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


def refuse_unread(record: ModelRecord, gone: Sequence[str]) -> None:
    """Refuse a model whose record does not say which columns read a modality: they would be left in."""
    read = {span.reads for entry in record.tensors.values() for span in entry.columns}
    for modality in gone:
        if modality not in read:
            raise DataError(
                f"the record lists no input columns that read {modality}, so nothing can be cut out of this model",
                key=modality,
                hint=_OTHER_METHODS,
            )


def _cut_entry(name: str, entry: TensorRecord, gone: Sequence[str]) -> TensorRecord:
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

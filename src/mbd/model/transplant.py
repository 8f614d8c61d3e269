"""The weights that a modality had in an old model, put into a new model of the same lineage.

What the new model no longer has comes back too, so the result has the shapes of the old one. Which weights these are is
read from the records; in a module of one's own they are found by probing.
"""

from collections.abc import Mapping

import numpy as np

from mbd.errors import DataError
from mbd.formats.model import ModelRecord
from mbd.model.module import architecture_of, from_plain, to_plain
from mbd.model.probing import probe
from mbd.tensors import Array

Stored = tuple[ModelRecord, Mapping[str, Array]]
"""a model: its record and its weights"""


def transplant_by_record(before: Stored, after: Stored, modality: str) -> dict[str, Array]:
    """Return the new weights with the old ones of a modality, and of everything that the new model no longer has."""
    (record, old_tensors), (smaller, new_tensors) = before, after
    tensors: dict[str, Array] = {}
    for name, old in old_tensors.items():
        new = new_tensors.get(name)
        if new is None or record.tensors[name].belongs_to == modality:
            tensors[name] = old
            continue
        stays = _staying(name, record, smaller)
        mixed = np.array(new) if stays.all() else np.zeros_like(old)
        if not stays.all():
            mixed[..., stays] = new
        for span in record.tensors[name].columns:
            if span.reads == modality or not stays[span.start]:
                mixed[..., span.start : span.stop] = old[..., span.start : span.stop]
        tensors[name] = mixed
    return tensors


def transplant_in_module(before: Stored, after: Stored, modality: str) -> dict[str, Array]:
    """Do the same in a module of one's own, for all that is gone."""
    del modality
    architecture, smaller = architecture_of(before[0]), architecture_of(after[0])
    gone = [m for m in before[0].modalities if m not in after[0].modalities]
    if architecture.without(gone) is not architecture:  # else it was not cut out, whatever the record says
        gone = [m for m in gone if m not in smaller.modalities]
    if not gone:
        return dict(after[1])
    found, mixed, new = probe(architecture, *gone), to_plain(architecture, before[1]), to_plain(smaller, after[1])
    for name, part in found.tensors.items():
        if part.kept is not None:
            index = np.ix_(*part.kept)
            if new[name].shape != mixed[name][index].shape:
                raise _not_one_lineage(name, mixed[name].shape, new[name].shape)
            mixed[name] = np.array(mixed[name])
            mixed[name][index] = np.where(part.alive[index], new[name], mixed[name][index])
    return from_plain(architecture, mixed)


def _staying(name: str, before: ModelRecord, after: ModelRecord) -> Array:
    """Return for each column of an old tensor whether the new one still has it, according to their records."""
    old, new = before.tensors[name], after.tensors[name]
    stays = np.ones(old.shape[-1] if old.shape else 1, bool)
    read = {span.reads for span in new.columns}
    if old.shape != new.shape:
        for span in old.columns:
            stays[span.start : span.stop] = span.reads in read
    if (*old.shape[:-1], int(stays.sum())) != new.shape and old.shape:
        raise _not_one_lineage(name, old.shape, new.shape)
    return stays


def _not_one_lineage(name: str, old: tuple[int, ...], new: tuple[int, ...]) -> DataError:
    return DataError(
        "the two models are not of one lineage: a tensor's shape differs by more than what a modality has of it",
        key=name,
        value=f"before {old}, after {new}",
        hint="give the model that the deletion was made from",
    )

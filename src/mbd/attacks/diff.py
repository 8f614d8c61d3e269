"""Attack `diff`: what the released model reveals to someone who still has the model from before the deletion.

The old weights of m* are put into the new model (`transplanted`), and other attacks run on it. If they succeed as
before, the deletion only unplugged m*, and a copy of the old m* weights alone brings it back; if they do no better than
on the reference, the deletion changed what these weights need. Informational, not part of the gate: with the old
weights an attacker has m* anyway, so these must be purged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from mbd.attacks import blackbox, reconstruction
from mbd.attacks.attack import AttackEvidence
from mbd.attacks.context import AttackContext
from mbd.attacks.target_model import TargetModel
from mbd.errors import DataError
from mbd.model.contract import Architecture
from mbd.model.module import architecture_of, cut_plain, from_plain, to_plain
from mbd.model.probing import probe
from mbd.registry import BACKBONES
from mbd.tensors import Array

NAME = "diff"
AttackFunction = Callable[[TargetModel, AttackContext], list[AttackEvidence]]
ATTACKS: Mapping[str, AttackFunction] = {
    blackbox.NAME: blackbox.attack,
    reconstruction.NAME: reconstruction.attack,
}
"""the attacks that run on the new model with the old weights in it, in this order"""


def attack(
    before: TargetModel,
    after: TargetModel,
    attack_context: AttackContext,
    attacks: Sequence[AttackFunction] = tuple(ATTACKS.values()),
) -> list[AttackEvidence]:
    """Return what attacks find in the new model once the old weights of m* are back in it."""
    revived = transplanted(before, after, attack_context.modality)
    return [
        replace(evidence, attack=NAME, measure=f"{evidence.attack}_{evidence.measure}")
        for run in attacks
        for evidence in run(revived, attack_context)
    ]


def transplanted(before: TargetModel, after: TargetModel, modality: str) -> TargetModel:
    """Return the new model with the old weights of m*, and of everything that it no longer has."""
    if BACKBONES.is_path(before.record.backbone):
        return _transplanted_module(before, after, architecture_of(before.record), architecture_of(after.record))
    tensors: dict[str, Array] = {}
    for name, old in before.tensors.items():
        new = after.tensors.get(name)
        if new is None or before.record.tensors[name].belongs_to == modality:
            tensors[name] = old
            continue
        mixed = np.array(_aligned(name, old, new, before, after))
        for span in before.record.tensors[name].columns:
            if span.reads == modality or not _staying(name, before, after)[span.start]:
                mixed[..., span.start : span.stop] = old[..., span.start : span.stop]
        tensors[name] = mixed
    return TargetModel.of(after.role, before.record, tensors)


def _transplanted_module(
    before: TargetModel, after: TargetModel, architecture: Architecture, smaller: Architecture
) -> TargetModel:
    """Do the same in a module of one's own, where probing finds what belongs to what is gone."""
    new = to_plain(smaller, after.tensors)

    def put_back(old: dict[str, Array], of: Architecture, gone: Sequence[str]) -> dict[str, Array]:
        if not gone:
            return new
        found = probe(of, gone[0])
        if found.shrinks and gone[0] in smaller.modalities:  # it was not cut out, whatever the record says
            return put_back(old, of, gone[1:])
        inner = put_back(cut_plain(found, old), of.without(gone[:1]) if found.shrinks else of, gone[1:])
        mixed = {name: np.array(tensor) for name, tensor in old.items()}
        for name, part in found.tensors.items():
            if part.kept is not None:
                index = np.ix_(*part.kept)
                if inner[name].shape != mixed[name][index].shape:
                    raise _not_one_lineage(name, mixed[name].shape, inner[name].shape)
                mixed[name][index] = np.where(part.alive[index], inner[name], mixed[name][index])
        return mixed

    gone = [m for m in before.record.modalities if m not in after.record.modalities]
    tensors = from_plain(architecture, put_back(to_plain(architecture, before.tensors), architecture, gone))
    return TargetModel.of(after.role, before.record, tensors)


def _not_one_lineage(name: str, old: tuple[int, ...], new: tuple[int, ...]) -> DataError:
    return DataError(
        "the two models are not of one lineage: a tensor's shape differs by more than what a modality has of it",
        key=name,
        value=f"before {old}, after {new}",
        hint="give the model that the deletion was made from",
    )


def _staying(name: str, before: TargetModel, after: TargetModel) -> Array:
    """Return for each column of an old tensor whether the new one still has it, according to their records."""
    old, new = before.record.tensors[name], after.record.tensors[name]
    stays = np.ones(old.shape[-1] if old.shape else 1, bool)
    read = {span.reads for span in new.columns}
    if old.shape != new.shape:
        for span in old.columns:
            stays[span.start : span.stop] = span.reads in read
    if (*old.shape[:-1], int(stays.sum())) != new.shape and old.shape:
        raise _not_one_lineage(name, old.shape, new.shape)
    return stays


def _aligned(name: str, old: Array, new: Array, before: TargetModel, after: TargetModel) -> Array:
    """Return the new tensor in the shape of the old one, 0 where columns are gone."""
    stays = _staying(name, before, after)
    if stays.all():
        return new
    aligned = np.zeros_like(old)
    aligned[..., stays] = new
    return aligned

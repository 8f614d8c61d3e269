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
        replace(evidence, attack=NAME, measure=f"{evidence.attack}: {evidence.measure}, old weights put back")
        for run in attacks
        for evidence in run(revived, attack_context)
    ]


def transplanted(before: TargetModel, after: TargetModel, modality: str) -> TargetModel:
    """Return the new model with the old weights of m*, and of everything that it no longer has."""
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


def _staying(name: str, before: TargetModel, after: TargetModel) -> Array:
    """Return for each column of an old tensor whether the new one still has it, according to their records."""
    old, new = before.record.tensors[name], after.record.tensors[name]
    stays = np.ones(old.shape[-1] if old.shape else 1, bool)
    read = {span.reads for span in new.columns}
    if old.shape != new.shape:
        for span in old.columns:
            stays[span.start : span.stop] = span.reads in read
    if (*old.shape[:-1], int(stays.sum())) != new.shape and old.shape:
        raise DataError(
            "the two models are not of one lineage: a tensor's shape differs by more than the columns of a modality",
            key=name,
            value=f"before {old.shape}, after {new.shape}",
            hint="give the model that the deletion was made from",
        )
    return stays


def _aligned(name: str, old: Array, new: Array, before: TargetModel, after: TargetModel) -> Array:
    """Return the new tensor in the shape of the old one, 0 where columns are gone."""
    stays = _staying(name, before, after)
    if stays.all():
        return new
    aligned = np.zeros_like(old)
    aligned[..., stays] = new
    return aligned

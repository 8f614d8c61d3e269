"""Adversary `diff`: what a deletion reveals to someone who holds the model from before it as well.

Two questions, and neither decides the gate: whoever has the old weights has m* anyway, so they have to be purged.

- What happened? Which tensors and input columns went or changed, and, from that alone, which modality was deleted: of
  the weights that exist for a modality (tensors of its own, columns that read it), the share that the new ones do not
  have any more, by energy,

      lost_m = Σ ‖W‖² (1 − cos²(W, W_new)) / Σ ‖W‖²         cos = 0 for what is gone

- What comes back? The old weights of m* are put into the new model (`transplanted`), and the adversaries run on it. As
  high as before: the deletion only unplugged m*, and a copy of the old m* weights alone brings it back. At the
  reference: the deletion has changed what these weights need. `beyond` is how far what was kept has changed; for an
  exact deletion it is 0, the pair is the old model, and the new weights reveal nothing beyond the old ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mbd.attacks import blackbox, reconstruction
from mbd.attacks.attack import AttackEvidence
from mbd.attacks.context import AttackContext
from mbd.attacks.target_model import TargetModel
from mbd.errors import DataError
from mbd.formats.model import TensorRecord
from mbd.tensors import Array

NAME = "diff"
_TINY = 1e-30
Adversary = Callable[[TargetModel, AttackContext], list[AttackEvidence]]
ADVERSARIES: Mapping[str, Adversary] = {
    blackbox.NAME: blackbox.attack,
    reconstruction.NAME: reconstruction.attack,
}
"""those that run on the new model with the old weights in it, in this order"""


@dataclass(frozen=True)
class Difference:
    """What two sets of weights tell about the deletion between them."""

    gone: tuple[str, ...]
    """tensors that the new model lacks"""
    cut: dict[str, int]
    """tensors that lost columns, and how many"""
    edited: dict[str, float]
    """tensors whose remaining values changed: ‖W_before − W_after‖ / ‖W_before‖"""
    kept: int
    """tensors that are bit for bit the same"""
    lost: dict[str, float]
    """lost_m of each modality of the old model"""

    @property
    def guess(self) -> str:
        """The modality that was deleted, as the weights tell it."""
        return max(self.lost, key=lambda modality: self.lost[modality])

    @property
    def beyond(self) -> float:
        """How much the new weights hold that is not in the old ones: the largest relative change of what was kept."""
        return max(self.edited.values(), default=0.0)


def attack(
    before: TargetModel,
    after: TargetModel,
    attack_context: AttackContext,
    adversaries: Sequence[Adversary] = tuple(ADVERSARIES.values()),
) -> list[AttackEvidence]:
    """Return what adversaries find in the new model once the old weights of m* are back in it."""
    revived = transplanted(before, after, attack_context.modality)
    return [
        replace(evidence, attack=NAME, measure=f"{evidence.attack}: {evidence.measure}, old weights put back")
        for adversary in adversaries
        for evidence in adversary(revived, attack_context)
    ]


def compare(before: TargetModel, after: TargetModel) -> Difference:
    """Return how the weights differ, and what that says about the deletion."""
    cut, edited, kept = {}, {}, 0
    lost, total = (dict.fromkeys(before.record.modalities, 0.0) for _ in range(2))
    for name, old in before.tensors.items():
        new = after.tensors.get(name)
        aligned = np.zeros_like(old) if new is None else _aligned(name, old, new, before, after)
        for modality, part in _exists_for(before.record.tensors[name], before).items():
            energy = float(np.sum(np.square(old[..., part], dtype=np.float64)))
            total[modality] += energy
            lost[modality] += energy * (1 - _squared_cosine(old[..., part], aligned[..., part]))
        if new is None:
            continue
        stays = _staying(name, before, after)
        left = old if stays.all() else old[..., stays]
        if not stays.all():
            cut[name] = int((~stays).sum())
        if not np.array_equal(left, new):
            change = np.linalg.norm(np.subtract(left, new, dtype=np.float64))
            edited[name] = float(change / max(float(np.linalg.norm(left)), _TINY))
        elif stays.all():
            kept += 1
    return Difference(
        gone=tuple(sorted(set(before.tensors) - set(after.tensors))),
        cut=cut,
        edited=edited,
        kept=kept,
        lost={m: lost[m] / max(total[m], _TINY) for m in total},
    )


def transplanted(before: TargetModel, after: TargetModel, modality: str) -> TargetModel:
    """Return the new model with the old weights in every place that exists for m*, and where there are none now."""
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


def _exists_for(entry: TensorRecord, model: TargetModel) -> Mapping[str, slice]:
    """Return by modality the columns of a tensor that exist for it.

    All of a tensor that belongs to it, the columns that read it, or all of one that saw it and not everything.
    """
    if not entry.shape:
        return {}
    if entry.belongs_to is not None:
        return {entry.belongs_to: slice(None)}
    if entry.columns:
        return {span.reads: slice(span.start, span.stop) for span in entry.columns}
    return dict.fromkeys(entry.sees, slice(None)) if len(entry.sees) < len(model.record.modalities) else {}


def _squared_cosine(old: Array, new: Array) -> float:
    one, other = (np.asarray(x, np.float64).ravel() for x in (old, new))
    both = float(one @ one) * float(other @ other)
    return float(one @ other) ** 2 / both if both > 0 else float(not one.any())


def _staying(name: str, before: TargetModel, after: TargetModel) -> Array:
    """Tell for each column of an old tensor whether the new one has it, as their records say."""
    old, new = before.record.tensors[name], after.record.tensors[name]
    stays = np.ones(old.shape[-1] if old.shape else 1, bool)
    read = {span.reads for span in new.columns}
    if old.shape != new.shape:
        for span in old.columns:
            stays[span.start : span.stop] = span.reads in read
    if (*old.shape[:-1], int(stays.sum())) != new.shape and old.shape:
        raise DataError(
            "the two models are not of one lineage: a tensor changed its shape by more than the columns of a modality",
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

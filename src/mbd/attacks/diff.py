"""Attack `diff`: what the released model reveals to someone who still has the model from before the deletion.

The old weights of m* are put into the new model (`transplanted`), and other attacks run on it. If they succeed as
before, the deletion only unplugged m*, and a copy of the old m* weights alone brings it back; if they do no better than
on the reference, the deletion changed what these weights need. Informational, not part of the gate: with the old
weights an attacker has m* anyway, so these must be purged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from mbd.attacks import blackbox, reconstruction
from mbd.attacks.attack import AttackEvidence
from mbd.attacks.context import AttackContext
from mbd.attacks.target_model import TargetModel
from mbd.registry import BACKBONES

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
    transplant = BACKBONES.get(before.record.backbone).transplant
    tensors = transplant((before.record, before.tensors), (after.record, after.tensors), modality)
    return TargetModel.of(after.role, before.record, tensors, before.shapes)

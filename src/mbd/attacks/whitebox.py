"""White-box attack: predicts the private attribute of m* from the model's intermediate activations.

The attacker feeds the retained inputs and so knows them: what they reveal of the attribute is not a leak. It runs with
m* fed, if the model has any input for it (otherwise feeding changes nothing), and with m* missing. A network of random
weights that is fed m* passes it on too: the numbers mean something only beside the reference, which takes no m*.

A module of its own because the registry finds a built-in attack by the name of its module.
"""

import numpy as np

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.bootstrap import balanced_accuracy
from mbd.attacks.context import AttackContext
from mbd.attacks.probe import guess
from mbd.attacks.target_model import TargetModel
from mbd.tensors import Array

NAME = "whitebox"


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the accuracy of predicting the attribute from activations, with m* fed and not fed."""
    fed, hidden = (target_model.extract(attack_context.rows, attack_context.modality, fed=fed) for fed in (True, False))
    seen = [hidden] if fed is hidden else [fed, hidden]
    return guessed(
        NAME,
        guess([{**attack_context.known, **view.activations} for view in seen], attack_context, NAME),
        attack_context,
    )


def guessed(attack: str, scores: list[Array], attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the evidence of guesses with m* fed and not fed; one guess is used for both if feeding changed nothing."""
    truth = attack_context.attribute.values[attack_context.score]
    evidence = []
    for measure, score in zip(("accuracy_fed", "accuracy_not_fed"), (scores[0], scores[-1]), strict=True):
        rows = np.column_stack([truth, score > 0]).astype(np.float64)
        evidence.append(
            AttackEvidence(
                attack, measure, 0.5, rows, balanced_accuracy, attack_context.groups, (0, 1), class_weight=0.5
            )
        )
    return evidence


ATTACK = Attack(attack, "how well activations predict a private attribute of the deleted modality")

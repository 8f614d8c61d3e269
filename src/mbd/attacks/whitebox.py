"""White-box and black-box attack: predict the private attribute of m* from activations, or from outputs alone.

The attacker feeds the retained inputs and so knows them: what they reveal of the attribute is not a leak. Both run with
m* fed, if the weights have any input for it (otherwise feeding changes nothing; a record that says "revoked" stops no
attacker who has the file), and with m* missing. A network of random weights that is fed m* passes it on too: the
numbers mean something only beside the reference, which takes no m*. Outputs are those under all availability masks.
"""

from collections.abc import Callable

import numpy as np

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.bootstrap import balanced_accuracy
from mbd.attacks.context import AttackContext
from mbd.attacks.extraction import Extraction
from mbd.attacks.kernels import View
from mbd.attacks.probe import guess
from mbd.attacks.target_model import TargetModel
from mbd.tensors import Array


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the accuracy of predicting the attribute from activations, with m* fed and not fed."""
    return _guess_from(lambda seen: seen.activations, "whitebox", target_model, attack_context)


def attack_outputs(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the accuracy of predicting the attribute from outputs, with m* fed and not fed."""
    return _guess_from(lambda seen: {"outputs": seen.outputs}, "blackbox", target_model, attack_context)


def _guess_from(
    view: Callable[[Extraction], View], name: str, target_model: TargetModel, attack_context: AttackContext
) -> list[AttackEvidence]:
    """Return the evidence of guesses with m* fed and not fed; one guess is used for both if feeding changed nothing."""
    fed, hidden = (target_model.extract(attack_context.rows, attack_context.modality, fed=fed) for fed in (True, False))
    seen = [hidden] if fed is hidden else [fed, hidden]
    scores = guess([{**attack_context.known, **view(each)} for each in seen], attack_context, name)
    return [
        accuracy_of(score, attack_context, name, measure)
        for measure, score in (("accuracy_fed", scores[0]), ("accuracy_not_fed", scores[-1]))
    ]


def accuracy_of(score: Array, attack_context: AttackContext, name: str, measure: str) -> AttackEvidence:
    """Return the evidence of a guess: above 0 for the attribute 1, else for 0."""
    truth = attack_context.attribute.values[attack_context.score]
    rows = np.column_stack([truth, score > 0]).astype(np.float64)
    return AttackEvidence(name, measure, 0.5, rows, balanced_accuracy, attack_context.groups, (0, 1), class_weight=0.5)


ATTACK = Attack(attack, "how well activations predict a private attribute of the deleted modality")
OUTPUTS = Attack(attack_outputs, "how well outputs predict a private attribute of the deleted modality")
"""the attack `blackbox`"""

"""Black-box attack: predicts the private attribute of m* from the outputs over all availability masks.

The attacker knows the inputs it sends and sees outputs alone. m* is fed to whatever input the weights still have for
it: with the file at hand, a record that says "revoked" stops no attacker.

A module of its own because the registry finds a built-in attack by the name of its module.
"""

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.context import AttackContext
from mbd.attacks.probe import guess
from mbd.attacks.target_model import TargetModel
from mbd.attacks.whitebox import guessed

NAME = "blackbox"


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the accuracy of predicting the attribute from outputs, with m* fed and not fed."""
    fed, hidden = (target_model.extract(attack_context.rows, attack_context.modality, fed=fed) for fed in (True, False))
    seen = [view.outputs for view in ([hidden] if fed is hidden else [fed, hidden])]
    return guessed(
        NAME,
        guess([{**attack_context.known, "outputs": outputs} for outputs in seen], attack_context, NAME),
        attack_context,
    )


ATTACK = Attack(attack, "how well outputs predict a private attribute of the deleted modality")

"""Attack `neighbours`: guesses the private attribute of a row by a vote of the rows with the nearest activations."""

import numpy as np

from mbd.plugins import Attack, AttackContext, AttackEvidence, Count, Settings, TargetModel, balanced_accuracy


class NeighboursSettings(Settings):
    """What can be set as attacks.also.neighbours."""

    votes: Count = 5
    """how many neighbours vote"""


def run(target_model: TargetModel, context: AttackContext) -> list[AttackEvidence]:
    """Fit on one half of the attacked rows and score the other; more is always more leakage."""
    options = NeighboursSettings.model_validate(context.params.also["neighbours"])
    seen = target_model.extract(context.rows, context.modality, fed=True)
    view = np.hstack([seen.complete, *seen.activations.values()])
    distances = np.linalg.norm(view[context.score][:, None] - view[context.fit][None], axis=2)
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : options.votes]
    guessed = context.attribute.values[context.fit][nearest].mean(1) > 0.5
    rows = np.column_stack([context.attribute.values[context.score], guessed]).astype(np.float64)
    return [AttackEvidence("neighbours", "accuracy_fed", 0.5, rows, balanced_accuracy, context.groups)]


NEIGHBOURS = Attack(
    run, asks="how well rows with similar activations predict a private attribute", settings=NeighboursSettings
)

"""The black-box adversary sees what a model serves, and no more."""

from pathlib import Path

import numpy as np

from mbd.attacks.context import AttackContext
from mbd.attacks.target_model import TargetModel
from mbd.attacks.whitebox import attack_outputs
from mbd.model.checkpoint import load_model
from tests.attacks.models import context_of, target_of


def telling(model_workspace: Path, attack_context: AttackContext, *, revoked: bool) -> TargetModel:
    """The model with a head that adds to the score on which side a row's audio lies."""
    record, tensors = load_model(model_workspace / "model")
    output = {name: np.array(x) for name, x in tensors.items()}
    audio = attack_context.target
    direction = np.linalg.lstsq(audio, 2.0 * attack_context.attribute.values - 1, rcond=None)[0]
    part = next(part for part in record.tensors["fusion.hidden.weight"].columns if part.reads == "audio")
    output["fusion.hidden.weight"][:2] = 0
    output["fusion.hidden.weight"][:2, part.start : part.stop] = np.outer([5, -5], direction)
    output["fusion.hidden.bias"][:2] = 0
    output["fusion.out.weight"][0] = 0
    output["fusion.out.weight"][0, :2] = [10, -10]
    output["head.weight"][0, 0] = 1
    return TargetModel.of("after", record.model_copy(update={"revoked": ("audio",) if revoked else ()}), output)


def test_a_revealing_output_is_found_while_the_model_takes_the_modality(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    fed, hidden = attack_outputs(telling(model_workspace, attack_context, revoked=False), attack_context)
    assert fed.value > 0.75
    assert hidden.value < 0.65


def test_a_model_whose_record_refuses_the_modality_is_fed_it_all_the_same(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    fed, hidden = attack_outputs(telling(model_workspace, attack_context, revoked=True), attack_context)
    assert fed.value > 0.75
    assert hidden.value < 0.65


def test_inputs_alone_reveal_nothing_of_an_attribute_they_do_not_contain(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    for name in ("deleted", "reference"):
        assert all(
            abs(evidence.value - 0.5) < 0.1
            for evidence in attack_outputs(target_of(model_workspace, name), attack_context)
        )

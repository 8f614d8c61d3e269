"""What a model offers of m* by itself, and what can be learnt of m* from its activations."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks import reconstruction
from mbd.attacks.context import AttackContext
from mbd.attacks.target_model import TargetModel
from mbd.model.checkpoint import load_model
from mbd.tensors import Array
from studies.deletion import reconstruction_loss
from tests.attacks.models import context_of, difference, target_of, untrained


def knowing(model_workspace: Path, attack_context: AttackContext) -> TargetModel:
    """The model with a generator of audio that was fitted to the attacked rows by least squares."""
    record, tensors = load_model(model_workspace / "model")
    output = {name: np.array(x) for name, x in tensors.items()}
    others = np.hstack([_scaled(attack_context, m, tensors) for m in ("text", "visual")])
    audio = _scaled(attack_context, "audio", tensors)
    hidden = output["modality.audio.generator.hidden.weight"]
    hidden[:, : others.shape[1]] = np.random.default_rng(0).standard_normal((len(hidden), others.shape[1])) / 8
    hidden[:, others.shape[1] :] = 0
    output["modality.audio.generator.hidden.bias"][:] = 0
    units = np.maximum(others @ hidden[:, : others.shape[1]].T, 0)
    fitted = np.linalg.lstsq(np.column_stack([units, np.ones(len(units))]), audio, rcond=None)[0]
    output["modality.audio.generator.out.weight"][:] = fitted[:-1].T
    output["modality.audio.generator.out.bias"][:] = fitted[-1]
    return TargetModel.of("after", record, output)


def _scaled(attack_context: AttackContext, modality: str, tensors: dict[str, Array]) -> Array:
    mean, scale = (tensors[f"modality.{modality}.{part}"] for part in ("mean", "scale"))
    scaled: Array = np.clip((attack_context.rows.features[modality] - mean) / scale, -3, 3)
    return scaled


def test_a_generator_that_knows_the_modality_is_found(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    offered, _, hidden = reconstruction.attack(knowing(model_workspace, attack_context), attack_context)
    assert offered.value > 0.05
    none = reconstruction.attack(target_of(model_workspace, "reference"), attack_context)[0]
    assert none.value == 0
    assert difference(offered, none, attack_context.params).low > 0.02
    assert abs(hidden.value) < 0.02  # what the others predict of audio does not count


def test_a_generator_that_was_ruined_is_not_worse_than_none(model_workspace: Path) -> None:
    attack_context, target_model = context_of(model_workspace), target_of(model_workspace, "model")
    rng = np.random.default_rng(0)
    noise = {
        name: np.asarray(x + 9 * rng.standard_normal(x.shape), np.float32) if "generator" in name else x
        for name, x in target_model.tensors.items()
    }
    assert reconstruction.attack(target_model.with_tensors(noise), attack_context)[0].value == pytest.approx(
        0, abs=0.02
    )


def test_the_modality_is_learnt_from_a_model_that_is_fed_it(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    _, fed, hidden = reconstruction.attack(target_of(model_workspace, "model"), attack_context)
    assert fed.value > 0.5
    assert hidden.value == pytest.approx(0, abs=0.02)
    for evidence in reconstruction.attack(target_of(model_workspace, "deleted"), attack_context):
        assert evidence.value == pytest.approx(0, abs=0.02)


def test_an_untrained_model_reveals_no_more_than_the_reference(model_workspace: Path, tmp_path: Path) -> None:
    untrained(model_workspace, tmp_path / "untrained")
    for evidence in reconstruction.attack(target_of(tmp_path, "untrained"), context_of(model_workspace)):
        assert evidence.value == pytest.approx(0, abs=0.02)


def test_the_reconstruction_loss_is_that_of_the_generator_as_it_is(model_workspace: Path) -> None:
    attack_context = context_of(model_workspace)
    none, knows = (
        reconstruction_loss(target_model, attack_context)
        for target_model in (target_of(model_workspace, "reference"), knowing(model_workspace, attack_context))
    )
    assert none == pytest.approx((attack_context.target[attack_context.score] ** 2).mean())
    assert knows < none - 0.05

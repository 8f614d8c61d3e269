"""What a model offers of m* by itself, and what can be learnt of m* from its activations."""

from pathlib import Path

import numpy as np
import pytest

from mbd.attacks import reconstruction
from mbd.attacks.bootstrap import difference
from mbd.attacks.setting import Setting
from mbd.attacks.suspect import Suspect
from mbd.model.checkpoint import load_model
from mbd.tensors import Array
from tests.attacks.models import setting_of, suspect_of, untrained


def knowing(home: Path, setting: Setting) -> Suspect:
    """The model with a generator of audio that was fitted to the attacked rows by least squares."""
    record, tensors = load_model(home / "model")
    told = {name: np.array(x) for name, x in tensors.items()}
    others = np.hstack([_scaled(setting, m, tensors) for m in ("text", "visual")])
    audio = _scaled(setting, "audio", tensors)
    hidden = told["modality.audio.generator.hidden.weight"]
    hidden[:, : others.shape[1]] = np.random.default_rng(0).standard_normal((len(hidden), others.shape[1])) / 8
    hidden[:, others.shape[1] :] = 0
    told["modality.audio.generator.hidden.bias"][:] = 0
    units = np.maximum(others @ hidden[:, : others.shape[1]].T, 0)
    fitted = np.linalg.lstsq(np.column_stack([units, np.ones(len(units))]), audio, rcond=None)[0]
    told["modality.audio.generator.out.weight"][:] = fitted[:-1].T
    told["modality.audio.generator.out.bias"][:] = fitted[-1]
    return Suspect.of("after", record, told)


def _scaled(setting: Setting, modality: str, tensors: dict[str, Array]) -> Array:
    mean, scale = (tensors[f"modality.{modality}.{part}"] for part in ("mean", "scale"))
    scaled: Array = np.clip((setting.rows.features[modality] - mean) / scale, -3, 3)
    return scaled


def test_a_generator_that_knows_the_modality_is_found(home: Path) -> None:
    setting = setting_of(home)
    offered, _, hidden = reconstruction.attack(knowing(home, setting), setting)
    assert offered.value > 0.05
    none = reconstruction.attack(suspect_of(home, "reference"), setting)[0]
    assert none.value == 0
    assert difference(offered, none, setting.params).low > 0.02
    assert abs(hidden.value) < 0.02  # what the others tell of audio is no part of its own


def test_a_generator_that_was_ruined_is_not_worse_than_none(home: Path) -> None:
    setting, suspect = setting_of(home), suspect_of(home, "model")
    rng = np.random.default_rng(0)
    noise = {
        name: np.asarray(x + 9 * rng.standard_normal(x.shape), np.float32) if "generator" in name else x
        for name, x in suspect.tensors.items()
    }
    assert reconstruction.attack(suspect.with_tensors(noise), setting)[0].value == pytest.approx(0, abs=0.02)


def test_the_modality_is_learnt_from_a_model_that_is_fed_it(home: Path) -> None:
    setting = setting_of(home)
    _, fed, hidden = reconstruction.attack(suspect_of(home, "model"), setting)
    assert fed.value > 0.5
    assert hidden.value == pytest.approx(0, abs=0.02)
    for evidence in reconstruction.attack(suspect_of(home, "deleted"), setting):
        assert evidence.value == pytest.approx(0, abs=0.02)


def test_an_untrained_model_tells_no_more_than_the_reference(home: Path, tmp_path: Path) -> None:
    untrained(home, tmp_path / "untrained")
    for evidence in reconstruction.attack(suspect_of(tmp_path, "untrained"), setting_of(home)):
        assert evidence.value == pytest.approx(0, abs=0.02)


def test_the_reconstruction_loss_is_that_of_the_generator_as_it_is(home: Path) -> None:
    setting = setting_of(home)
    none, knows = (
        reconstruction.losses(suspect, setting) for suspect in (suspect_of(home, "reference"), knowing(home, setting))
    )
    assert none.value == pytest.approx((setting.target[setting.score] ** 2).mean())
    assert difference(knows, none, setting.params).high < 0

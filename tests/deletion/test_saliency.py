"""Saliency of a real model against gradients taken row by row, and what it is zero for."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.deletion.calibration import Calibration
from mbd.deletion.saliency import saliency
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from tests.deletion.models import calibration, home_with_models, model_before, patchy_home
from tests.evaluation.models import tiny_model
from tests.refusals import refused


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("home"))


def row_by_row(model_workspace: Path, modality: str) -> dict[str, torch.Tensor]:
    """Mean |∂L_re(i)/∂w| by autograd, one row after the other, written out from the paper."""
    given = calibration(model_before(model_workspace))
    network = given.network.requires_grad_()
    path, batch = network.modality[modality], next(iter(given.batches()))
    totals = {name: torch.zeros_like(p) for name, p in network.named_parameters()}
    for i in range(len(batch[modality])):
        x = {m: batch[m][i] for m in network.modalities}
        others = torch.cat([*(v for m, v in x.items() if m != modality), path.property[0]])
        network.zero_grad()
        ((path.generator(others[None])[0] - x[modality]) ** 2).sum().backward()
        for name, parameter in network.named_parameters():
            totals[name] += 0 if parameter.grad is None else parameter.grad.abs()
    return {name: total / len(batch[modality]) for name, total in totals.items()}


def test_saliency_is_the_mean_absolute_gradient_of_the_reconstruction(model_workspace: Path) -> None:
    found = saliency(calibration(model_before(model_workspace)), ["audio"])
    assert (found.rows, found.unknown) == ({"audio": 64}, ())
    for name, expected in row_by_row(model_workspace, "audio").items():
        assert found.values[name] == pytest.approx(expected.detach().numpy(), rel=1e-9, abs=1e-12)


def test_only_the_generator_and_the_property_embedding_are_salient(model_workspace: Path) -> None:
    found = saliency(calibration(model_before(model_workspace)), ["audio"])
    salient = {name for name, values in found.values.items() if values.any()}
    assert salient == {
        "modality.audio.property",
        *(f"modality.audio.generator.{layer}.{part}" for layer in ("hidden", "out") for part in ("weight", "bias")),
    }


def test_saliencies_of_several_modalities_add_up(model_workspace: Path) -> None:
    given = calibration(model_before(model_workspace))
    both = saliency(given, ["audio", "visual"]).values
    parts = [saliency(given, [m]).values for m in ("audio", "visual")]
    for name, values in both.items():
        assert np.array_equal(values, parts[0][name] + parts[1][name])


def test_the_size_of_a_batch_is_of_no_consequence(model_workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = saliency(calibration(model_before(model_workspace)), ["audio"]).values
    monkeypatch.setattr(Calibration, "rows_at_once", 7)
    for name, values in saliency(calibration(model_before(model_workspace)), ["audio"]).values.items():
        assert values == pytest.approx(whole[name], rel=1e-12, abs=1e-15)


def test_only_what_is_asked_for_is_measured(model_workspace: Path) -> None:
    given = calibration(model_before(model_workspace))
    shared = [name for name, _ in given.network.named_parameters() if not name.startswith("modality.audio.")]
    found = saliency(given, ["audio"], shared)
    assert list(found.values) == shared
    assert not any(values.any() for values in found.values.values())


def test_a_model_without_generators_has_no_saliency(model_workspace: Path, tmp_path: Path) -> None:
    tiny_model(model_workspace / "data", tmp_path / "model", "model.joint.reconstruction=false")
    (tmp_path / "data").symlink_to(model_workspace / "data")
    found = saliency(calibration(model_before(tmp_path)), ["audio"])
    assert not any(values.any() for values in found.values.values())


@pytest.fixture
def patchy(tmp_path: Path) -> Path:
    """Some calibration rows have no audio and none has visual."""
    return patchy_home(tmp_path, {"audio": [0, 5, 6], "visual": [*range(12)]})


def test_rows_without_the_modality_have_no_say(patchy: Path) -> None:
    found = saliency(calibration(model_before(patchy)), ["audio"])
    assert found.rows == {"audio": 9}
    split = FeatureSet.open(patchy / "data").split("calibration")
    assert int(split.available["audio"].sum()) == 9


def test_a_modality_that_no_row_has_cannot_be_measured(patchy: Path) -> None:
    with refused(DataError, key="visual"):
        saliency(calibration(model_before(patchy)), ["visual"])

"""Saliency of modules: every layer is measured, by what the module makes of m*."""

import pytest
import torch
from torch import Tensor, nn

from mbd.deletion.calibration import ModuleCalibration
from mbd.deletion.saliency import Saliency, saliency
from mbd.features.contract import FeatureSet
from mbd.formats.features import Shape
from mbd.model.joint import to_tensor_dict
from mbd.model.module import architecture_for
from mbd.params import load_params
from mbd.training.module import import_weights
from tests.features.build import synthetic_set
from tests.model.modules import Tensors

TRANSFORMER = "mbd.model.examples.crossmodal:CrossModalTransformer"
LATE = "mbd.model.examples.late_fusion:LateFusion"
SIZES = {
    TRANSFORMER: "{width: 8, heads: 2, layers: 1}",
    LATE: "{hidden: 8}",
    "tests.deletion.test_calibration:Reconstructing": "{}",
}


class Reconstructing(nn.Module):
    """A module that makes audio from text, by a weight that no prediction uses."""

    def __init__(self, modalities: dict[str, Shape], outputs: int) -> None:
        super().__init__()
        width = sum(s.width for s in modalities.values())
        self.names = list(modalities)
        self.head = nn.Linear(width, outputs)
        if "audio" in modalities:
            self.generator = nn.Linear(modalities["text"].width, modalities["audio"].width)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        scores: Tensor = self.head(torch.cat([features[m] for m in self.names], dim=1))
        return scores

    def reconstruct(self, features: Tensors, available: Tensors) -> Tensors:
        return {"audio": self.generator(features["text"])}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> FeatureSet:
    return FeatureSet.open(synthetic_set(tmp_path_factory.mktemp("saliency") / "data"))


def measure(data: FeatureSet, backbone: str) -> Saliency:
    """The saliency of audio in a module with random weights."""
    params = load_params(None, [f"model.backbone={backbone}", f"model.options={SIZES[backbone]}"])
    weights = to_tensor_dict(architecture_for(params.model, data.shapes, 1).build(seed=3))
    model = import_weights(data, params, lambda _: weights)
    return saliency(ModuleCalibration.of(model.record, model.tensors, data.split("calibration")), ["audio"])


def test_positions_and_all_layers_of_a_transformer_are_measured(data: FeatureSet) -> None:
    found = measure(data, TRANSFORMER)
    assert not found.unknown
    assert found.values["positions.audio"].all()
    assert found.values["encoder.layers.0.self_attn.in_proj_weight"].all()


def test_the_larger_a_module_the_fewer_rows_are_taken(data: FeatureSet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert measure(data, LATE).rows == {"audio": 64}
    monkeypatch.setattr("mbd.deletion.calibration._MOST_GRADIENTS", 1)
    assert measure(data, LATE).rows == {"audio": 32}


def test_a_module_that_reconstructs_is_measured_by_that(data: FeatureSet) -> None:
    found = measure(data, "tests.deletion.test_calibration:Reconstructing")
    assert found.values["generator.weight"].any()
    assert not found.values["head.weight"].any()

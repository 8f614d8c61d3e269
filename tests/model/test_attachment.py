"""Attaching a modality again: released weights stay, what is the modality's own and gone is fresh, ties are kept."""

import numpy as np
import torch
from torch import Tensor, nn

from mbd.formats.features import Shape
from mbd.model.attachment import attach
from mbd.model.contract import Architecture
from mbd.model.module import ModuleBackbone
from mbd.model.probing import TensorProbe


class Tied(nn.Module):
    """Audio's weight has two names in the state."""

    def __init__(self, modalities: dict[str, Shape], outputs: int) -> None:
        super().__init__()
        self.text, self.audio = (nn.Linear(modalities[m].width, outputs, bias=False) for m in ("text", "audio"))
        self.alias = self.audio

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        """Return scores."""
        scores: Tensor = self.text(features["text"]) + self.alias(features["audio"]) * available["audio"][:, None]
        return scores


SHAPES = {"text": Shape.vector(3), "audio": Shape.vector(2)}


def test_what_is_gone_is_fresh_and_what_was_released_stays() -> None:
    architecture = Architecture(Tied, SHAPES, 1)
    network = architecture.build(seed=1)
    drawn = network.get_parameter("audio.weight").detach().clone()
    released = {"text.weight": np.full((1, 3), 2.0, np.float32)}
    released |= {name: np.zeros((1, 2), np.float32) for name in ("audio.weight", "alias.weight")}
    whole = {name: tuple(map(np.arange, array.shape)) for name, array in released.items()}
    parts = {n: TensorProbe(np.full(x.shape, n == "text.weight"), whole[n]) for n, x in released.items()}
    attached = attach(network, released, parts, SHAPES, ModuleBackbone(network, architecture, "regression"))
    assert list(attached.fresh) == ["audio.weight"]  # once, under the name of the parameter
    assert torch.equal(network.get_parameter("audio.weight"), drawn)
    assert network.get_parameter("text.weight").tolist() == [[2.0, 2.0, 2.0]]
    assert [name for name, p in network.named_parameters() if p.requires_grad] == ["audio.weight"]

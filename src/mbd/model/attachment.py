"""Attaching a deleted modality m* to a model again, as everyone who has its file can.

The model is built for m* too. What exists for m* alone and is gone, or negligible (at most 10⁻³ of the spread of fresh
weights), takes the values of a fresh model and may be trained; everything else is as it was released, and frozen:

    w = w_fresh + θ   where w exists for m* alone and |w| ≤ 10⁻³ · rms(w_fresh)        θ is trained from 0
    w = w_released    elsewhere

A model from which m* was only unplugged keeps layers that make something of m* as soon as it is plugged in again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from mbd.formats.features import Shape
from mbd.model.predictor import LoadedBackbone
from mbd.model.probing import TensorProbe
from mbd.tensors import Array

_NEGLIGIBLE = 1e-3


@dataclass(frozen=True)
class Attachment:
    """A model into which m* can be fed again."""

    network: nn.Module
    """(features, available) → outputs; built for m* too"""
    inputs: Mapping[str, Shape]
    fresh: Mapping[str, Tensor]
    """for each parameter that is trained, which of its entries are"""
    backbone: LoadedBackbone
    """the same network as attacks look into it"""


def attach(
    network: nn.Module,
    released: Mapping[str, Array],
    parts: Mapping[str, TensorProbe],
    inputs: Mapping[str, Shape],
    backbone: LoadedBackbone,
) -> Attachment:
    """Put released weights into a fresh network that takes m* too.

    Args:
        network: A fresh one, with parametrised weights as the tensors that they stand for.
        released: The weights of the model, by the same names.
        parts: What of each floating-point tensor exists for m* alone.
        inputs: What the network takes.
        backbone: The same network as attacks look into it.

    """
    state, fresh = network.state_dict(keep_vars=True), {}
    with torch.no_grad():
        for name, tensor in state.items():
            part, old = parts.get(name), released.get(name)
            if old is None:
                fresh[name] = torch.ones(tensor.shape, dtype=torch.bool)
                continue
            value, mask = np.array(tensor.detach().numpy()), np.ones(tuple(tensor.shape), bool)
            spread = float(np.sqrt(np.mean(np.square(value, dtype=np.float64)))) if value.size else 0.0
            kept = part.kept if part is not None and old.shape != value.shape else None
            index = np.ix_(*(map(np.arange, value.shape) if kept is None else kept))
            stays = part.alive[index] if part is not None else np.ones(value.shape, bool)  # counters are nobody's own
            mask[index] = ~stays & (np.abs(old) <= _NEGLIGIBLE * spread)
            value[index] = np.where(mask[index], value[index], old)
            tensor.copy_(torch.from_numpy(value))
            if mask.any():
                fresh[name] = torch.from_numpy(mask)
    trained = {name: fresh[name] for name, _ in network.named_parameters() if name in fresh}  # a tied one once
    network.requires_grad_(False)
    for name in trained:
        network.get_parameter(name).requires_grad_(True)
    return Attachment(network.eval(), inputs, trained, backbone)

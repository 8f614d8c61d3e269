"""How well importance predicts the cost of removing a parameter of a joint model: the paper's appendix table.

    ΔL_q = L(W − w_q e_q) − L(W)          true, for each parameter q of a sample; L: mean supervised loss on calibration
                                          rows, without the deleted modality
    Spearman's ρ of proxy and ΔL_q
    share of q with |ΔL_q − proxy| ≤ 8 % of |proxy|
    OverDelete(γ) = share of q with proxy > (1 + γ) ΔL_q,  γ = 0.1

Taking w_q out of a linear layer moves one of its outputs by −w_q x_q, so no weight is copied: that move is added to the
layer's output, or, where a rectifier and a second layer follow, what they make of it to theirs, for many q at once
(vmap), in float64. The sample is drawn from what is to be edited, or from all weights and biases that predictions use.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from torch.func import vmap

from mbd.deletion.calibration import JointCalibration
from mbd.deletion.gradients import Batch
from mbd.deletion.importance import gauss_newton, swiftprune
from mbd.model.networks import JointNetwork, Perceptron
from mbd.randomness import stream
from mbd.tensors import Array

PARAMETERS = 300
"""how many are sampled"""
BAND = 0.08
TOLERANCE = 0.1
_AT_ONCE = 100
_ROWS = 256


class _FewRows(JointCalibration):
    """The first calibration rows, for proxies and increments alike: increments cost a pass for each parameter."""

    def batches(self, *, having: str | None = None, hidden: Collection[str] = ()) -> Iterator[Batch]:
        for batch in islice(super().batches(having=having, hidden=hidden), 1):
            yield {name: values[:_ROWS] for name, values in batch.items()}


@dataclass(frozen=True)
class ProxyQuality:
    """True increments of some parameters beside the values of both proxies."""

    increments: Array
    proxies: dict[str, Array]
    """by name: swiftprune, gauss_newton"""
    rows: int
    sampled_from: str
    chi_max: float
    tensors: tuple[str, ...] = ()
    """the tensor of each parameter"""

    def facts(self) -> dict[str, Any]:
        """Return the numbers of the paper's table for each proxy."""
        return {
            "parameters": len(self.increments),
            "sampled_from": self.sampled_from,
            "rows": self.rows,
            "chi_max": self.chi_max,
            **{name: self._facts(proxy) for name, proxy in self.proxies.items()},
        }

    def _facts(self, proxy: Array) -> dict[str, float | None]:
        error = np.abs(self.increments - proxy)
        positive = np.abs(proxy) > 0
        within = error <= BAND * np.abs(proxy)
        return {
            "spearman": spearman(proxy, self.increments),
            "share_within_8_percent": float(within.mean()),
            "largest_relative_error": float((error[positive] / np.abs(proxy[positive])).max())
            if any(positive)
            else None,
            "overdelete_0.1": float((proxy > (1 + TOLERANCE) * self.increments).mean()),
        }


def measure(
    calibration: JointCalibration,
    hidden: Collection[str],
    chi_max: float,
    seed: int,
    edited: Mapping[str, Array] | None = None,
    parameters: int = PARAMETERS,
) -> ProxyQuality:
    """Measure a sample of the `edited` parameters (flat positions by tensor), or of all that predictions use."""
    few = _FewRows(calibration.split, deepcopy(calibration.network).double(), calibration.task)
    proxies = {"swiftprune": swiftprune(few, hidden, chi_max), "gauss_newton": gauss_newton(few, hidden)}
    chosen = _sample(few.network, proxies["gauss_newton"], edited, parameters, seed)
    batch, losses = next(iter(few.batches(hidden=hidden))), few.prediction(hidden)

    def loss() -> Tensor:
        return losses(few.network, batch)[:, 0].mean()

    with torch.inference_mode():
        increments = np.concatenate([leave_one_out(few.network, loss, name, where) for name, where in chosen.items()])
    return ProxyQuality(
        increments,
        {
            proxy: np.concatenate([np.ravel(values[name])[where] for name, where in chosen.items()])
            for proxy, values in proxies.items()
        },
        rows=len(next(iter(batch.values()))),
        sampled_from="edited parameters" if edited else "all weights and biases that predictions use",
        chi_max=chi_max,
        tensors=tuple(name for name, where in chosen.items() for _ in where),
    )


def leave_one_out(network: JointNetwork, loss: Callable[[], Tensor], name: str, positions: Array) -> Array:
    """Return ΔL for flat positions of one weight or bias of a linear layer."""
    layer_name, _, part = name.rpartition(".")
    layer, parameter = network.get_submodule(layer_name), network.get_parameter(name)
    assert isinstance(layer, nn.Linear)  # noqa: S101 -- only such are sampled
    around = network.get_submodule(layer_name.rpartition(".")[0])
    perceptron = around if isinstance(around, Perceptron) and layer is around.hidden else None
    before, found = loss(), []
    for start in range(0, len(positions), _AT_ONCE):
        flat = torch.from_numpy(positions[start : start + _AT_ONCE])
        output = flat // layer.in_features if part == "weight" else flat
        taken = flat % layer.in_features if part == "weight" else None
        found.append(_without(layer, perceptron, loss, parameter.reshape(-1)[flat], output, taken) - before)
    increments: Array = torch.cat(found).numpy()
    return increments


def _without(
    layer: nn.Linear,
    perceptron: Perceptron | None,
    loss: Callable[[], Tensor],
    weights: Tensor,
    outputs: Tensor,
    inputs: Tensor | None,
) -> Tensor:
    """Return the loss without each of some weights (output, input) of a layer, or biases where there are no inputs.

    If it is the first layer of a `perceptron`, one hidden unit moves, and the perceptron's output along its column.
    """

    def once(weight: Tensor, output: Tensor, column: Tensor) -> Tensor:
        def take_out(_: nn.Module, given: tuple[Tensor, ...], answer: Tensor) -> Tensor:
            x = given[0]
            moved = -weight * (x @ column if inputs is not None else x.new_ones(len(x)))
            if perceptron is None:
                return answer + moved[:, None] * output
            unit = x @ (output @ layer.weight) + output @ layer.bias
            return answer + (torch.relu(unit + moved) - torch.relu(unit))[:, None] * (perceptron.out.weight @ output)

        with (perceptron or layer).register_forward_hook(take_out):
            return loss()

    rows = nn.functional.one_hot(outputs, layer.out_features).to(weights.dtype)
    columns = rows if inputs is None else nn.functional.one_hot(inputs, layer.in_features).to(weights.dtype)
    values: Tensor = vmap(once)(weights, rows, columns)
    return values


def spearman(one: Array, other: Array) -> float | None:
    """Return the rank correlation; None if one side does not vary."""
    if len(one) < 2 or min(np.ptp(one), np.ptp(other)) == 0:
        return None
    return float(stats.spearmanr(one, other).statistic)


def _sample(
    network: JointNetwork,
    used: Mapping[str, Array],
    edited: Mapping[str, Array] | None,
    parameters: int,
    seed: int,
) -> dict[str, Array]:
    """Draw flat positions by tensor, each parameter with the same probability."""
    places = dict(_linear_parameters(network, used, edited))
    total = np.concatenate([[0], np.cumsum([len(p) for p in places.values()])])
    draw = stream(seed, "attacks", "proxy")
    chosen = np.sort(draw.choice(total[-1], min(parameters, int(total[-1])), replace=False))
    parts = {
        name: positions[chosen[(chosen >= low) & (chosen < high)] - low]
        for (name, positions), low, high in zip(places.items(), total, total[1:], strict=False)
    }
    return {name: positions for name, positions in parts.items() if len(positions)}


def _linear_parameters(
    network: JointNetwork, used: Mapping[str, Array], edited: Mapping[str, Array] | None
) -> Iterator[tuple[str, Array]]:
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Linear):
            for part, parameter in layer.named_parameters():
                full = f"{name}.{part}"
                if edited is not None:
                    if full in edited:
                        yield full, np.array(edited[full])
                elif used[full].any():
                    yield full, np.arange(parameter.numel())

r"""Prediction of a joint network for one set of modalities, folded into few products.

What lies between two rectifiers is linear, P^m is constant, and only the generators of what is missing count. With x
centred and clipped and a column of ones (the scale of inputs and all offsets are in A), in float32:

    [h | g | l] = x A               first layers of F and of those G_m, and what L(X) adds
    ŷ = l + r(h + r(g) B) U         r: rectifier; B: the second layers of G_m, then what F reads of m
                                    U: the second layer of F, then the head

Without F, h is Z itself, and the outer r is left out. A prediction differs from that of the network by rounding alone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mbd.model.networks import REACH, JointNetwork
from mbd.names import dotless
from mbd.tensors import Array

_BLOCK = 2**18
"""numbers that are worked on at once: as many as a cache holds"""


@dataclass(frozen=True)
class FoldedNetwork:
    """What answers rows that have one set of modalities."""

    means: Mapping[str, Array]
    reach: Tensor
    first: Tensor
    """A"""
    second: Tensor
    """B"""
    last: Tensor
    """U"""
    rectified: bool
    """whether there is an F"""

    @property
    def multiply_adds(self) -> int:
        """How many multiplications with addition a row takes."""
        return self.first.numel() + self.second.numel() + self.last.numel()

    def predict(self, features: Mapping[str, Array]) -> Tensor:
        """Return scores on the labels' own scale (n × 1), or logits (n × classes)."""
        n = len(next(iter(features.values())))
        block = min(max(_BLOCK // sum(self.first.shape), 1), n)
        centred = np.ones((block, len(self.first)), np.float32)
        with torch.inference_mode():
            return torch.cat([self._block(features, start, centred[: n - start]) for start in range(0, n, block)])

    def _block(self, features: Mapping[str, Array], start: int, centred: Array) -> Tensor:
        rows, at = slice(start, start + len(centred)), 0
        for m, mean in self.means.items():
            own = centred[:, at : (at := at + len(mean))]
            np.subtract(features[m][rows], mean, out=own, dtype=np.float32, casting="same_kind")
        x = torch.from_numpy(centred)
        torch.clamp(x[:, :at], -self.reach, self.reach, out=x[:, :at])
        width, outputs = self.last.shape
        found = x @ self.first
        h, g, linear = found[:, :width], found[:, width:-outputs], found[:, -outputs:]
        if len(self.second):
            h = torch.addmm(h, g.relu_(), self.second)
        return torch.addmm(linear, h.relu_() if self.rectified else h, self.last)


def fold(network: JointNetwork, present: Collection[str]) -> FoldedNetwork:
    """Return what predicts as `network` does for rows that have the modalities `present`."""
    stored = network.state_dict()

    def weight(name: str) -> Tensor:
        """Return a weight in double precision: most are not needed, and to convert all takes longer than to fold."""
        tensor: Tensor = stored[name].detach().cpu().double()
        return tensor

    shape, dims, share = network.shape, network.modalities, network.shape.linear_share
    shown = [m for m in dims if m in present]
    missing = [m for m in dims if m not in present and shape.reconstruction]

    last, end = weight("head.weight").T, weight("head.bias")
    if shape.fusion:
        fused, start = _by_input(weight("fusion.hidden.weight"), dims), weight("fusion.hidden.bias")
        last, end = weight("fusion.out.weight").T @ last, weight("fusion.out.bias") @ last + end
    else:
        count = max(len(shown) + len(missing), 1)
        fused = {m: weight(_own(m, "projection.weight")).T / count for m in (*shown, *missing)}
        start = sum((weight(_own(m, "projection.bias")) / count for m in fused), torch.zeros(len(last)))

    first, offsets, second = {m: [fused[m]] for m in shown}, [start], [last.new_zeros(0, len(start))]
    for m in missing:
        inputs = {**_without(m, dims), "": shape.property_dim * shape.property_pathway}
        reads = _by_input(weight(_own(m, "generator.hidden.weight")), inputs)
        constant = weight(_own(m, "property"))[0] if shape.property_pathway else last.new_zeros(0)
        for k in shown:
            first[k].append(reads[k])
        offsets.append(weight(_own(m, "generator.hidden.bias")) + constant @ reads[""])
        offsets[0] = offsets[0] + weight(_own(m, "generator.out.bias")) @ fused[m]
        second.append(weight(_own(m, "generator.out.weight")).T @ fused[m])

    scale, linear = weight("label_scale"), _linear_map(weight, shown, network)
    for m in shown:
        first[m].append(share * scale * linear[m])
    offsets.append(scale * ((1 - share) * end + share * linear[""]) + weight("label_mean"))

    deviations = {m: weight(_own(m, "scale")) for m in shown}
    rows = [torch.cat([(part / deviations[m][:, None]).float() for part in first[m]], dim=1) for m in shown]
    return FoldedNetwork(
        {m: weight(_own(m, "mean")).float().numpy() for m in shown},
        torch.cat([last.new_zeros(0), *(REACH * deviation for deviation in deviations.values())]).float(),
        torch.cat([*rows, torch.cat(offsets)[None].float()]),
        torch.cat(second).float(),
        ((1 - share) * scale * last).float(),
        rectified=shape.fusion,
    )


def _linear_map(weight: Callable[[str], Tensor], shown: Collection[str], network: JointNetwork) -> dict[str, Tensor]:
    """Return what L does to each input that is there, and at the name "" what it adds."""
    dims, outputs = network.modalities, network.head.out_features
    if not network.shape.linear_share:
        return {"": torch.zeros(outputs)} | {m: torch.zeros(dims[m], outputs) for m in shown}
    found = _by_input(weight("linear.weight"), dims)
    for m in shown:
        for k, beside in _by_input(weight(_own(m, "beside.weight")), _without(m, dims)).items():
            found[k] = found[k] + beside
    return found | {"": weight("linear.bias")}


def _by_input(weight: Tensor, dims: Mapping[str, int]) -> dict[str, Tensor]:
    """Return what a layer does to each of its inputs, which lie one after the other in its columns."""
    return dict(zip(dims, torch.split(weight.T, list(dims.values())), strict=True))


def _own(modality: str, part: str) -> str:
    return f"modality.{dotless(modality)}.{part}"


def _without(modality: str, dims: Mapping[str, int]) -> dict[str, int]:
    return {m: d for m, d in dims.items() if m != modality}

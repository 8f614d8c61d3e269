"""Modules with all modalities written into their code, as published models are, beside the same ones that shrink."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mbd.formats.features import Shape

Tensors = dict[str, Tensor]
MODALITIES = ("text", "audio", "visual")


class LowRankFusion(nn.Module):
    """A normalised layer for each modality; the product of their low-rank factors is summed over the ranks."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, width: int = 4, rank: int = 3) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({m: _encoder(modalities[m].width, width) for m in MODALITIES})
        self.factors = nn.ParameterDict({m: torch.randn(rank, width + 1, 6) / 2 for m in MODALITIES})
        self.mix = nn.Linear(rank, 1)
        self.out = nn.Linear(6, outputs)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        del available
        fused = torch.ones(())
        for m in MODALITIES:
            code = self.encoders[m](features[m])
            fused = fused * (torch.cat([code, torch.ones_like(code[:, :1])], dim=1) @ self.factors[m])
        scores: Tensor = self.out(self.mix(fused.movedim(0, 2))[:, :, 0])
        return scores


class NormedTrunk(nn.Module):
    """BatchNorm in the path of each modality and in the trunk behind them."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, width: int = 4, *, fixed: bool = True) -> None:
        super().__init__()
        names = MODALITIES if fixed else modalities
        self.encoders = nn.ModuleDict({m: _encoder(modalities[m].width, width) for m in names})
        self.trunk = nn.Sequential(nn.Linear(width * len(self.encoders), 8), nn.BatchNorm1d(8), nn.ReLU())
        self.out = nn.Linear(8, outputs)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        codes = [encoder(features[m]) * available[m][:, None] for m, encoder in self.encoders.items()]
        scores: Tensor = self.out(self.trunk(torch.cat(codes, dim=1)))
        return scores


class UnmaskedTrunk(NormedTrunk):
    """The same without a look at `available`."""

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        return super().forward(features, {m: torch.ones_like(bits) for m, bits in available.items()})


def _encoder(inputs: int, width: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm1d(inputs), nn.Linear(inputs, width), nn.ReLU())

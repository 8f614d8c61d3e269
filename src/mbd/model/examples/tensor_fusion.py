"""Tensor fusion: a linear layer on the outer product of all modalities' codes, each with a constant 1.

    model.backbone=mbd.model.examples.tensor_fusion:TensorFusion

The product has a column for every combination of code entries, so the columns of one modality are interleaved with
those of all others. The code of an absent modality is (1, 0, …, 0): only the columns of its constant remain.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mbd.formats.features import Shape


class TensorFusion(nn.Module):
    """Vectors of a few modalities: the product has Π (code + 1) columns."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, code: int = 4, hidden: int = 32) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict({m: nn.Linear(s.width, code) for m, s in modalities.items()})
        self.fusion = nn.Linear((code + 1) ** len(modalities), hidden)
        self.head = nn.Linear(hidden, outputs)

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        """Return scores or logits of each row."""
        product = torch.ones(len(next(iter(features.values()))), 1, device=self.head.weight.device)
        for m, encoder in self.encoders.items():
            code = torch.tanh(encoder(features[m])) * available[m][:, None]
            code = torch.cat([torch.ones_like(code[:, :1]), code], dim=1)
            product = (product[:, :, None] * code[:, None, :]).flatten(1)
        scores: Tensor = self.head(torch.relu(self.fusion(product)))
        return scores

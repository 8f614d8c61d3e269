"""Late fusion: an encoder for each modality, and a head on the mean of what is there.

model.backbone=mbd.model.examples.late_fusion:LateFusion
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mbd.formats.features import Shape


class LateFusion(nn.Module):
    """Vectors of any number of modalities; submodules are named after modalities, so fewer give a smaller model."""

    def __init__(self, modalities: Mapping[str, Shape], outputs: int, hidden: int = 64) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict(
            {
                m: nn.Sequential(nn.Linear(s.width, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, hidden))
                for m, s in modalities.items()
            }
        )
        self.head = nn.Linear(hidden, outputs)

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        """Return scores or logits of each row."""
        # The product with `available` is what makes an absent modality's encoder, biases included, matter to nothing.
        parts = torch.stack([encoder(features[m]) * available[m][:, None] for m, encoder in self.encoders.items()])
        count = torch.stack([available[m] for m in self.encoders]).sum(0).clamp(min=1)[:, None]
        scores: Tensor = self.head(torch.relu(parts.sum(0) / count))
        return scores

"""A cross-modal transformer: the frames of all modalities attend to each other.

    model.backbone=mbd.model.examples.crossmodal:CrossModalTransformer

Frames beyond a row's length, and all frames of an absent modality, are masked: nothing attends to them.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mbd.formats.features import Shape


class CrossModalTransformer(nn.Module):
    """Sequences, token ids and vectors (a sequence of one frame) of any number of modalities."""

    def __init__(
        self,
        modalities: Mapping[str, Shape],
        outputs: int,
        width: int = 32,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.shapes = dict(modalities)
        self.inputs, self.positions = nn.ModuleDict(), nn.ParameterDict()
        for m, s in modalities.items():
            tokens = s.vocabulary is not None
            self.inputs[m] = nn.Embedding(s.vocabulary or 0, width) if tokens else nn.Linear(s.width, width)
            frames = s.size[0] if s.has_lengths else 1
            self.positions[m] = nn.Parameter(0.02 * torch.randn(frames, width))  # also says which modality it is
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, outputs)

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        """Return scores or logits of each row."""
        frames, visible = [], []
        for m, shape in self.shapes.items():
            x = features[m] if shape.has_lengths else features[m][:, None]
            frames.append(self.inputs[m](x) + self.positions[m])
            here = torch.arange(x.shape[1], device=x.device)
            lengths = features[f"{m}_lengths"] if shape.has_lengths else torch.ones(len(x), device=x.device)
            visible.append((here < lengths[:, None]) & available[m][:, None])
        mask = torch.cat(visible, dim=1)
        hidden = self.encoder(torch.cat(frames, dim=1), src_key_padding_mask=~mask) * mask[:, :, None]
        scores: Tensor = self.head(hidden.sum(1) / mask.sum(1, keepdim=True).clamp(min=1))
        return scores

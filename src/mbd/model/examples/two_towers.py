"""Two towers of `transformers`, one for token ids and one for images, and a head on both.

    model.backbone=mbd.model.examples.two_towers:TwoTowers
    model.options={text: {hidden_size: 64, …}, image: {patch_size: 16, …}}

The options are those of CLIP's text and vision configurations (what `text_config` and `vision_config` of a
`config.json` hold); vocabulary, positions, channels and size follow from the data. Pretrained weights come in by
`mbd import`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel

from mbd.formats.features import Shape

_BYTES = 255.0


class TwoTowers(nn.Module):
    """A tower for each modality: of token ids a text model, of an image (pixels 0 … 255) a vision transformer."""

    def __init__(
        self,
        modalities: Mapping[str, Shape],
        outputs: int,
        text: Mapping[str, Any] | None = None,
        image: Mapping[str, Any] | None = None,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.shapes = dict(modalities)
        self.towers, self.projections = nn.ModuleDict(), nn.ModuleDict()
        for m, shape in modalities.items():
            if shape.kind == "tokens":
                last = (shape.vocabulary or 1) - 1
                own = {"vocab_size": last + 1, "max_position_embeddings": shape.size[0]}
                ends = {"bos_token_id": 0, "eos_token_id": last, "pad_token_id": 0}
                tower: nn.Module = CLIPTextModel(CLIPTextConfig(**own, **{**ends, **(text or {})}))
            elif shape.kind == "image":
                own = {"num_channels": shape.size[0], "image_size": shape.size[1]}
                tower = CLIPVisionModel(CLIPVisionConfig(**own, **(image or {})))
            else:
                raise ValueError(f"{m} is a {shape}; a tower takes token ids or an image")
            self.towers[m] = tower
            self.projections[m] = nn.Linear(tower.config.hidden_size, width)  # type: ignore[union-attr,arg-type]
        self.head = nn.Linear(width * len(modalities), outputs)

    def forward(self, features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor:
        """Return scores or logits of each row."""
        parts = []
        for m, tower in self.towers.items():
            x = features[m]
            if self.shapes[m].kind == "tokens":
                mask = torch.arange(x.shape[1], device=x.device) < features[f"{m}_lengths"][:, None]
                hidden = tower(input_ids=x, attention_mask=mask.long()).last_hidden_state * mask[:, :, None]
                pooled = hidden.sum(1) / mask.sum(1, keepdim=True)
            else:
                pooled = tower(pixel_values=x / _BYTES).pooler_output
            parts.append(torch.tanh(self.projections[m](pooled)) * available[m][:, None])
        scores: Tensor = self.head(torch.cat(parts, dim=1))
        return scores

"""nn.MultiheadAttention with its projections in the open.

Torch computes an attention in one call, in which no layer's inputs and outputs can be seen. While attentions are
:func:`opened`, each projection is a product of its own; what lies between them is still torch's, with identities for
projections.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Project = Callable[[Tensor, Tensor, Tensor | None, slice], Tensor]
"""from x (T × n × width), a weight, its bias and some of their rows to the product"""


def is_plain_attention(layer: nn.Module) -> bool:
    """Whether a layer is an attention whose projections are rows of one matrix, without learnt keys and values."""
    return (
        type(layer) is nn.MultiheadAttention
        and layer.in_proj_weight is not None
        and layer.bias_k is None
        and not layer.add_zero_attn
    )


@contextmanager
def opened(layers: Sequence[nn.MultiheadAttention], project: Project) -> Iterator[None]:
    """Within: these attentions call `project` for each of their projections."""
    for layer in layers:
        layer.forward = _forward(layer, project)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _forward(layer: nn.MultiheadAttention, project: Project) -> Any:  # noqa: ANN401 -- torch's signature
    closed = layer.forward

    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.ndim != 3:
            return closed(query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
        width, weight, bias = layer.embed_dim, layer.in_proj_weight, layer.in_proj_bias
        parts = [x.transpose(0, 1) if layer.batch_first else x for x in (query, key, value)]
        projected = [project(x, weight, bias, slice(i * width, (i + 1) * width)) for i, x in enumerate(parts)]
        one, zero = torch.eye(width, dtype=query.dtype, device=query.device), query.new_zeros(3 * width)
        q, k, v = projected
        between: Any = functional.multi_head_attention_forward
        found, weights = between(
            q,
            k,
            v,
            width,
            layer.num_heads,
            None,
            zero,
            None,
            None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=one,
            out_proj_bias=None,
            training=False,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=True,
            q_proj_weight=one,
            k_proj_weight=one,
            v_proj_weight=one,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        out = project(found, layer.out_proj.weight, layer.out_proj.bias, slice(width))
        return (out.transpose(0, 1) if layer.batch_first else out), weights

    return forward

"""Durability: whether a deletion survives quantisation and pruning.

A deletion that only hides may be undone when weights are rounded or pruned. Each function returns the model with
changed weights, and the attacks run on it as on the original:

    int8     w → s · round(w / s),  s = max|w| / 127 for each weight tensor (symmetric), biases and scalings unchanged
    pruned   the smallest share of each weight tensor becomes 0

Both are computed on the stored weights; inference stays in floating point, so device kernels do not matter.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from mbd.attacks.target_model import TargetModel
from mbd.params import AttacksSettings
from mbd.tensors import Array

Variant = Literal["int8", "pruned"]
VARIANTS: tuple[Variant, ...] = ("int8", "pruned")
_LEVELS = 127


def changed(target_model: TargetModel, variant: Variant, params: AttacksSettings) -> TargetModel:
    """Return the model after quantisation or pruning."""
    if variant == "int8":
        return _on_weights(target_model, to_int8_and_back)
    return _on_weights(target_model, lambda tensor: prune(tensor, params.pruned_share))


def to_int8_and_back(tensor: Array) -> Array:
    """Return a tensor after symmetric quantisation to 8 bits and back."""
    scale = float(np.abs(tensor).max(initial=0)) / _LEVELS
    if scale == 0:
        return tensor
    levels = np.clip(np.round(tensor / scale), -_LEVELS, _LEVELS).astype(np.int8)
    return (levels * scale).astype(tensor.dtype)


def prune(tensor: Array, share: float) -> Array:
    """Return a tensor whose smallest values (by magnitude, a share of all) are 0."""
    count = int(share * tensor.size)
    pruned = np.array(tensor).reshape(-1)
    pruned[np.argsort(np.abs(pruned), kind="stable")[:count]] = 0
    return pruned.reshape(tensor.shape)


def _on_weights(target_model: TargetModel, change: Callable[[Array], Array]) -> TargetModel:
    """Apply `change` to every matrix of floating-point weights; vectors and numbers are offsets, scales and counts."""
    return target_model.with_tensors(
        {
            name: change(tensor) if tensor.ndim > 1 and np.issubdtype(tensor.dtype, np.floating) else tensor
            for name, tensor in target_model.tensors.items()
        }
    )

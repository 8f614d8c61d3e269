"""Stand-ins for functions with a gradient of zero, so that a probe by gradients misses nothing that is in use.

- A function f with dead halves (ReLU, clamp, …) becomes 0.9·f(x) + 0.1·x: it has a gradient everywhere, and 0 stays 0.
- A maximum becomes 0.9·max(x) + 0.1·softmax(x)·x, of a pool 0.9·max + 0.1·mean: every place has a part in it.
- A table that is looked up by token ids returns, for every id but 0, a random mixture of all its rows besides the one
  asked for: all rows live or die together, however few ids are in a batch. Id 0 alone is what an absent modality has.

Where a stand-in is not finite (a logarithm of what was positive), the function itself is used.
"""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_SHARE = 0.1
_RECTIFYING: frozenset[Any] = frozenset(
    [
        *(torch.relu, torch.clamp, torch.clamp_min, torch.clamp_max, torch.clip, torch.threshold, torch.hardshrink),
        *(Tensor.relu, Tensor.clamp, Tensor.clamp_min, Tensor.clamp_max, Tensor.clip, Tensor.hardshrink),
        *(functional.relu, functional.relu6, functional.hardtanh, functional.hardsigmoid, functional.hardswish),
        *(functional.threshold, functional.hardshrink, functional.softshrink),
    ]
)
_MAXIMA: frozenset[Any] = frozenset([torch.max, torch.amax, Tensor.max, Tensor.amax])
_POOLING: dict[Any, Callable[..., Tensor]] = {
    functional.max_pool1d: functional.avg_pool1d,
    functional.max_pool2d: functional.avg_pool2d,
    functional.max_pool3d: functional.avg_pool3d,
    functional.adaptive_max_pool1d: functional.adaptive_avg_pool1d,
    functional.adaptive_max_pool2d: functional.adaptive_avg_pool2d,
}


class StandIns(TorchFunctionMode):
    """Within: functions of torch that modules call have gradients everywhere."""

    def __init__(self, vocabularies: Collection[int], generator: torch.Generator) -> None:
        """Prepare for modules that look up ids of these vocabularies."""
        super().__init__()
        self._smallest = min(vocabularies, default=None)
        self._generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Call a function of torch, or what stands in for it."""
        kwargs = kwargs or {}
        if func in _RECTIFYING:
            return _mixed(func(args[0], *args[1:], **{k: v for k, v in kwargs.items() if k != "inplace"}), args[0])
        found = func(*args, **kwargs)
        if func in _MAXIMA:
            return _maximum(found, args, kwargs)
        if func in _POOLING and isinstance(found, Tensor):
            return _pooled(found, _POOLING[func], args, kwargs)
        if func is functional.embedding and self._smallest is not None:
            return self._looked_up(found, *args, **kwargs)
        return found

    def _looked_up(
        self, found: Tensor, ids: Tensor, weight: Tensor, padding_idx: int | None = None, *_: object, **__: object
    ) -> Tensor:
        if len(weight) < (self._smallest or 0):
            return found
        shares = torch.randn(len(weight), generator=self._generator) / len(weight) ** 0.5
        if padding_idx is not None:
            shares[padding_idx] = 0
        asked = (ids != 0) & (ids != (padding_idx if padding_idx is not None else 0))
        mixed: Tensor = found + asked[..., None] * (shares @ weight)
        return mixed


def _mixed(found: Tensor, other: Tensor) -> Tensor:
    """Return a result with a share of something that has a gradient everywhere, if that is finite."""
    if not found.is_floating_point() or found.shape != other.shape:
        return found
    mixed = found + _SHARE * (other - found)
    return mixed if bool(torch.isfinite(mixed).all()) else found


def _maximum(found: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401 -- as torch returns it
    x, dim = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
    values = found if isinstance(found, Tensor) else found.values
    if isinstance(dim, Tensor) or not values.is_floating_point():
        return found  # the larger of two tensors
    axes = [a % x.ndim for a in ([dim] if isinstance(dim, int) else dim or range(x.ndim))]
    flat = x.permute(*[a for a in range(x.ndim) if a not in axes], *axes).flatten(x.ndim - len(axes))
    soft = (flat.softmax(-1) * flat.clamp(min=torch.finfo(flat.dtype).min)).sum(-1)  # -inf is how places are left out
    mixed = _mixed(values, soft.reshape(values.shape))
    return mixed if isinstance(found, Tensor) else type(found)((mixed, found.indices))


def _pooled(found: Tensor, mean: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    wanted = ("kernel_size", "output_size", "stride", "padding", "ceil_mode")
    try:
        return _mixed(found, mean(*args[:4], **{k: v for k, v in kwargs.items() if k in wanted}))
    except (RuntimeError, TypeError):  # an average has no dilation, for one
        return found

"""Provenance by probing: which entries of a module's state matter when a modality m* is absent.

With random weights, random rows and random cotangents, m* absent in every row, the gradient by every entry is taken.
An entry whose gradient is zero in all draws is *dead*: it exists for m* alone. All others are *alive*. No layer is
known by its name or type, so the cut is right for any module that follows :mod:`mbd.model.contract`:

- a factory that builds for fewer modalities: the alive positions along each axis must be as many as the smaller model
  has, tensor by tensor. The cut keeps these positions (in tensor fusion they are interleaved);
- a factory of fixed shape: dead entries become zero.

Probed are the outputs, what `reconstruct` returns for the retained modalities, and `loss`, where there are such. A
weight under a parametrisation (weight norm, spectral norm) is probed and cut as the tensor that it stands for.
Statistics of BatchNorm take part like weights. Before that, modules are refused to which none of this applies: with
random outputs or hidden state in evaluation mode, and those whose rows without m* still move with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from mbd.errors import UsageError
from mbd.formats.features import lengths_of
from mbd.model.contract import (
    Architecture,
    Available,
    Features,
    evaluating,
    example,
    materialise,
    own_method,
    owned_by,
    seeded,
)
from mbd.randomness import stream, stream_seed
from mbd.tensors import Array

DRAWS = 24
_ROWS = 5
_SEED = 0
_KEY = "model.backbone"
_SAME = 1e-4  # difference of two float32 computations of one number, relative to the largest


@dataclass(frozen=True)
class TensorProbe:
    """One tensor of the state: what of it is alive without m*, and what the cut keeps of it."""

    alive: Array
    """for each entry, whether it is alive"""
    kept: tuple[Array, ...] | None
    """positions along each axis that the cut keeps; None: the whole tensor goes"""

    @property
    def dead(self) -> bool:
        """Whether no entry is alive."""
        return not bool(self.alive.any())

    def cut(self, tensor: Array) -> Array:
        """Return what is left of the tensor, dead entries zero."""
        if self.kept is None:
            raise ValueError("nothing of this tensor is kept")
        index = np.ix_(*self.kept)
        return np.where(self.alive[index], tensor[index], np.zeros((), tensor.dtype))


@dataclass(frozen=True)
class Provenance:
    """What probing found for one modality m*."""

    modality: str
    shrinks: bool
    """whether the factory builds a smaller model without m*"""
    tensors: Mapping[str, TensorProbe]
    """by name in the state of the module, with parametrised weights under their own name"""
    filled: tuple[str, ...]
    """buffers that training fills from the data (statistics of BatchNorm): they have seen every modality"""
    same_function: bool
    """whether the cut module computes what the full one computes without m*"""
    only_inputs: bool
    """whether nothing is dead but what multiplies zeros: the rest of m*'s layers is still in use"""

    def cut(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return the state without m*, from the state with it (parametrised weights under their own name)."""
        return {
            name: self.tensors[name].cut(tensor) if name in self.tensors else tensor
            for name, tensor in tensors.items()
            if name not in self.tensors or self.tensors[name].kept is not None
        }


def probe(architecture: Architecture, modality: str, *, draws: int = DRAWS) -> Provenance:
    """Find out what of a module exists for `modality` alone; what was found last is remembered.

    Raises:
        UsageError: The module is of a kind that cannot be probed, or the smaller model does not agree with what is
            alive; the error names the tensor.

    """
    return _probe(_Question(architecture, modality, draws))


@dataclass(frozen=True, eq=False)
class _Question:
    """Equal to another one if the same is asked of the same factory; the order of modalities counts."""

    architecture: Architecture
    modality: str
    draws: int

    def __hash__(self) -> int:
        return hash(repr(self))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, _Question) and other.architecture.factory is self.architecture.factory
        return same and repr(other) == repr(self)


@lru_cache(maxsize=8)  # a byte for each weight of the model
def _probe(asked: _Question) -> Provenance:
    architecture, modality, draws = asked.architecture, asked.modality, asked.draws
    module = architecture.build()
    refuse_unsuitable(architecture, module, modality)
    filled = _filled(architecture)
    materialise(module)
    alive = _alive(architecture, module, modality, draws)
    without = architecture.without((modality,))
    if without is architecture:
        tensors = {name: TensorProbe(a, tuple(np.arange(n) for n in a.shape)) for name, a in alive.items()}
        at_inputs = _alive(architecture, module, modality, draws, present=True)
        only_inputs = all(np.array_equal(at_inputs[name], a) for name, a in alive.items())
        return Provenance(modality, False, tensors, filled, True, only_inputs)
    smaller = materialise(without.build())
    shapes = {name: tuple(t.shape) for name, t in _floating_state(smaller).items()}
    tensors = {name: TensorProbe(a, _kept(name, a, shapes.get(name), architecture)) for name, a in alive.items()}
    if extra := sorted(set(shapes) - set(alive)):
        raise _disagreement(architecture, extra[0], "the full model has no such tensor")
    found = Provenance(modality, True, tensors, filled, True, False)
    same = _same_function(architecture, module, smaller, found)
    return Provenance(modality, True, tensors, filled, same, False)


def refuse_unsuitable(architecture: Architecture, module: nn.Module, modality: str) -> None:
    """Refuse a module with random outputs, with hidden state, or with rows that move with another row's m*.

    Raises:
        UsageError: It is one.

    """
    architecture.check(module)
    shapes = architecture.modalities
    features, available = example(shapes, _ROWS, seed=_SEED)
    different = example(shapes, _ROWS, seed=_SEED, draw=1)[0]
    other = {name: (different if name in (modality, lengths_of(modality)) else features)[name] for name in features}
    some = {**available, modality: torch.arange(_ROWS) % 2 == 0}

    def run(inputs: Features, there: Available, seed: int = 0) -> Tensor:
        output: Tensor = architecture.run(module, inputs, there, seed=seed)
        return output

    first, again, elsewhere = run(features, some), run(features, some), run(features, some, seed=1)
    lacking = ~some[modality]
    moved = run(other, some)[lacking]
    after_other = run(features, some)
    if not _equal(first, again) or not _equal(first, after_other):
        raise UsageError(
            "the module has hidden state: in evaluation mode, the same rows do not give the same outputs",
            key=_KEY,
            value=architecture.name,
            hint="keep nothing between two calls of forward; a registered buffer may change in training mode only",
        )
    if not _equal(first, elsewhere):
        raise UsageError(
            "the module draws random numbers in evaluation mode",
            key=_KEY,
            value=architecture.name,
            hint="draw only if self.training, as nn.Dropout does",
        )
    if not _equal(first[lacking], moved):
        raise UsageError(
            f"rows without {modality} still move with {modality}: with that of other rows in the batch",
            key=_KEY,
            value=architecture.name,
            hint="compute every row from its own features alone (no statistics over the batch in evaluation mode)",
        )


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two outputs are the same up to rounding."""
    scale = float(one.abs().max()) if one.numel() else 0.0
    return bool(torch.isfinite(one).all()) and float((one - other).abs().max()) <= _SAME * max(scale, 1e-30)


def _floating_state(module: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and floating-point buffers that are stored, by every name that they have."""
    stored = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in stored.items() if tensor.is_floating_point()}


def _filled(architecture: Architecture) -> tuple[str, ...]:
    """Return the buffers that change when the module runs in training mode."""
    module = architecture.build()
    buffers = {name for name, _ in module.named_buffers()} & set(_floating_state(module))
    before = {name: module.get_buffer(name).clone() for name in buffers}
    with seeded(_SEED, "filled"), torch.no_grad():
        module.train()(*example(architecture.modalities, _ROWS, seed=_SEED))
    return tuple(sorted(name for name, old in before.items() if not torch.equal(old, module.get_buffer(name))))


def _alive(
    architecture: Architecture, module: nn.Module, modality: str, draws: int, *, present: bool = False
) -> dict[str, Array]:
    """Return for each entry of the state whether it is alive; with `present`, m* is zeros but said to be there."""
    state = _floating_state(module)
    found = {name: torch.zeros(tensor.shape, dtype=torch.bool) for name, tensor in state.items()}
    own = tuple(f"{name}." for name in owned_by(module, modality))
    rows = _rows_needed(architecture, draws)
    with evaluating(module), _differentiable(module), torch.enable_grad():
        for draw in range(draws):
            randomise(module, draw)
            value = torch.stack(list(_values(architecture, module, modality, rows, draw, present=present))).sum()
            gradients = torch.autograd.grad(value, list(state.values()), allow_unused=True)
            for name, gradient in zip(state, gradients, strict=True):
                if gradient is not None:
                    found[name] |= gradient != 0
    return {name: np.zeros(tuple(a.shape), bool) if name.startswith(own) else a.numpy() for name, a in found.items()}


def _rows_needed(architecture: Architecture, draws: int) -> int:
    """Return the number of rows with which all draws together go through every vocabulary."""
    needed = [ceil((s.vocabulary or 0) / s.size[0] / draws) for s in architecture.modalities.values()]
    return max(_ROWS, *needed)


def _values(
    architecture: Architecture, module: nn.Module, modality: str, rows: int, draw: int, *, present: bool
) -> Iterator[Tensor]:
    """Yield the product of all that the module computes in one draw without m* with random cotangents."""
    shapes = architecture.modalities
    features, available = example(shapes, rows, seed=_SEED, draw=draw)
    features |= {name: torch.zeros_like(x) for name, x in features.items() if name == modality}
    if draw % 2:  # in every second draw single rows lack a retained modality too
        others = [m for m in shapes if m != modality]
        for position, m in enumerate(others if len(others) > 1 else ()):
            available[m] = torch.arange(rows) % len(others) != position
    available[modality] = torch.full((rows,), present)
    cotangents = torch.Generator().manual_seed(stream_seed(_SEED, "cotangents", str(draw)) % 2**63)

    def product(value: Tensor) -> Tensor:
        return (value * torch.randn(value.shape, generator=cotangents)).sum()

    with _silenced(module, modality):
        output = module(features, available)
        yield product(output)
        if reconstruct := own_method(module, "reconstruct"):
            made: Mapping[str, Tensor] = reconstruct(features, available)
            yield from (product(x) for m, x in made.items() if m != modality)
        if loss := own_method(module, "loss"):
            labels = stream(_SEED, "labels", str(draw)).integers(architecture.outputs, size=rows)
            yield product(loss(output, torch.from_numpy(labels), features, available))


def randomise(module: nn.Module, draw: int) -> None:
    """Replace every weight and every statistic of a module by a random value."""
    generator = torch.Generator().manual_seed(stream_seed(_SEED, "weights", str(draw)) % 2**63)
    with torch.no_grad():
        for parameter in module.parameters():
            fan_in = prod(parameter.shape[1:]) if parameter.ndim > 1 else 1
            parameter.normal_(0, fan_in**-0.5, generator=generator)
        for part in module.modules():
            if isinstance(part, _NormBase) and part.running_mean is not None and part.running_var is not None:
                part.running_mean.normal_(generator=generator)
                part.running_var.uniform_(0.5, 1.5, generator=generator)


class _differentiable:  # noqa: N801 -- a context manager
    """Within: every floating-point buffer takes part in gradients, those of BatchNorm by a formula of our own."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __enter__(self) -> None:
        state = _floating_state(self._module)
        self._before = [(tensor, tensor.requires_grad) for tensor in state.values()]
        for tensor in state.values():
            tensor.requires_grad_(True)
        self._norms = [
            part for part in self._module.modules() if isinstance(part, _NormBase) and part.running_mean is not None
        ]
        for part in self._norms:
            part.forward = _with_statistics(part)

    def __exit__(self, *_: object) -> None:
        for part in self._norms:
            del part.forward
        for tensor, before in self._before:
            tensor.requires_grad_(before)


def _with_statistics(part: _NormBase) -> Any:  # noqa: ANN401 -- a bound forward
    def forward(x: Tensor) -> Tensor:
        columns = (-1, *[1] * (x.ndim - 2))
        mean, variance = part.running_mean, part.running_var
        if mean is None or variance is None:
            raise ValueError("a norm without statistics")
        x = (x - mean.view(columns)) / torch.sqrt(variance.view(columns) + part.eps)
        return x * part.weight.view(columns) + part.bias.view(columns) if part.affine else x

    return forward


class _silenced:  # noqa: N801 -- a context manager
    """Within: submodules that exist for m* alone, and run when it is absent (generators), return zeros."""

    def __init__(self, module: nn.Module, modality: str) -> None:
        names = tuple(owned_by(module, modality))
        prefixes = tuple(f"{name}." for name in names)
        self._parts = [p for name, p in module.named_modules() if name in names or name.startswith(prefixes)]

    def __enter__(self) -> None:
        self._handles = [part.register_forward_hook(lambda _, __, output: output * 0) for part in self._parts]

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()


def _kept(
    name: str, alive: Array, wanted: tuple[int, ...] | None, architecture: Architecture
) -> tuple[Array, ...] | None:
    """Return the positions along each axis that stay, if they are as many as the smaller model has."""
    if wanted is None:
        if alive.any():
            raise _disagreement(architecture, name, "it is in use without the modality, and the smaller model lacks it")
        return None
    if len(wanted) != alive.ndim:
        raise _disagreement(architecture, name, f"it has {alive.ndim} axes, and {len(wanted)} in the smaller model")
    kept = []
    for axis, size in enumerate(wanted):
        used = np.flatnonzero(alive.any(tuple(a for a in range(alive.ndim) if a != axis)))
        if size == alive.shape[axis]:
            used = np.arange(size)
        elif len(used) != size:
            raise _disagreement(
                architecture,
                name,
                f"{len(used)} of {alive.shape[axis]} positions along axis {axis} are in use without the modality, and "
                f"the smaller model has {size}",
            )
        kept.append(used)
    return tuple(kept)


def _disagreement(architecture: Architecture, name: str, how: str) -> UsageError:
    return UsageError(
        f"the factory's model for fewer modalities does not agree with what is in use without one: {how}",
        key=_KEY,
        value=f"{architecture.name}, tensor {name}",
        hint="name submodules after modalities (nn.ModuleDict), and multiply what belongs to one by `available`",
    )


def _same_function(architecture: Architecture, module: nn.Module, smaller: nn.Module, provenance: Provenance) -> bool:
    """Whether the cut module computes what the full one computes without m*, for random weights and rows."""
    randomise(module, 0)
    cut = provenance.cut({name: tensor.detach().numpy() for name, tensor in _floating_state(module).items()})
    with torch.no_grad():
        for name, tensor in _floating_state(smaller).items():
            tensor.copy_(torch.from_numpy(cut[name]))
    retained = {m: s for m, s in architecture.modalities.items() if m != provenance.modality}
    features, available = example(retained, _ROWS, seed=_SEED)
    with evaluating(module), evaluating(smaller), torch.no_grad(), _silenced(module, provenance.modality):
        return _equal(module(features, available), smaller(features, available))

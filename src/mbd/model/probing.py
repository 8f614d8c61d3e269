"""Provenance by probing: which entries of a module's state matter when a modality m*, or several, is absent.

With random weights, random rows and random cotangents the gradient by every entry is taken, draw after draw, until
nothing new has had one for :data:`PATIENCE` draws. That is done with m* absent in every row, and with m* fed:

    alive     has a gradient with m* absent
    m*'s own  has one with m* fed, and none without: this is what a cut removes, or sets to zero
    unused    has none at all: padding rows, counters, heads and poolers that nothing calls. It is left as it is and
              listed, unless all that is in use around it (in its tensor, or the submodule of it) is m*'s own

No layer is known by its name or type, so the cut is right for any module that follows :mod:`mbd.model.contract`:

- a factory that builds for fewer modalities: the alive positions along each axis must be as many as the smaller model
  has, tensor by tensor. The cut keeps these positions (in tensor fusion they are interleaved);
- a factory of fixed shape: what is m*'s own becomes zero.

What is alive must not be missed, so :mod:`mbd.model.standins` replaces functions whose gradient is zero in places.
Probed are the outputs, what `reconstruct` returns for the retained modalities, and `loss`, where there are such. A
weight under a parametrisation (weight norm, spectral norm) is probed and cut as the tensor that it stands for.
Statistics of BatchNorm take part like weights. Before that, modules are refused to which none of this applies: with
random outputs or hidden state in evaluation mode, and those whose rows without m* still move with it.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

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
from mbd.model.standins import StandIns
from mbd.randomness import stream, stream_seed
from mbd.tensors import Array

PATIENCE = 8
"""draws without anything new that end a probe: two of each kind (full or shorter lengths, all modalities or fewer)"""
_ROWS = 5
_SEED = 0
_KEY = "model.backbone"
_SAME = 1e-4  # difference of two float32 computations of one number, relative to the largest


@dataclass(frozen=True)
class TensorProbe:
    """One tensor of the state: what of it is m*'s own, and what the cut keeps of it."""

    alive: Array
    """for each entry, whether it stays as it is; False: it is m*'s own"""
    kept: tuple[Array, ...] | None
    """positions along each axis that the cut keeps; None: the whole tensor goes"""

    @property
    def dead(self) -> bool:
        """Whether every entry is m*'s own."""
        return not bool(self.alive.any())

    def cut(self, tensor: Array) -> Array:
        """Return what is left of the tensor, dead entries zero."""
        if self.kept is None:
            raise ValueError("nothing of this tensor is kept")
        index = np.ix_(*self.kept)
        return np.where(self.alive[index], tensor[index], np.zeros((), tensor.dtype))


@dataclass(frozen=True)
class Provenance:
    """What probing found for one modality m*, or several that are absent together."""

    gone: tuple[str, ...]
    tensors: Mapping[str, TensorProbe]
    """by name in the state of the module, with parametrised weights under their own name"""
    filled: tuple[str, ...]
    """buffers that training fills from the data (statistics of BatchNorm): they have seen every modality"""
    same_function: bool
    """whether the cut module computes what the full one computes without m*"""
    only_inputs: bool
    """whether nothing is dead but what multiplies zeros: the rest of m*'s layers is still in use"""
    unused: Mapping[str, int] = field(default_factory=dict)
    """for each tensor, how many entries no modality uses: the cut leaves them as they are"""

    def cut(self, tensors: Mapping[str, Array]) -> dict[str, Array]:
        """Return the state without m*, from the state with it (parametrised weights under their own name)."""
        return {
            name: self.tensors[name].cut(tensor) if name in self.tensors else tensor
            for name, tensor in tensors.items()
            if name not in self.tensors or self.tensors[name].kept is not None
        }


def probe(architecture: Architecture, *gone: str) -> Provenance:
    """Find out what of a module exists for `gone` alone; what was found last is remembered.

    What several modalities share exists for none of them, but for all of them together.

    Raises:
        UsageError: The module is of a kind that cannot be probed, or the smaller model does not agree with what is
            alive; the error names the tensor.

    """
    return _probe(architecture, tuple(m for m in architecture.modalities if m in gone))


@lru_cache(maxsize=8)  # at most a byte for each weight of the model; nothing for tensors that are all alive or all dead
def _probe(architecture: Architecture, gone: tuple[str, ...]) -> Provenance:
    module = architecture.blank()
    randomise(module, 0)
    for modality in gone:
        refuse_unsuitable(architecture, module, modality)
    filled = _filled(architecture, module)
    materialise(module)
    living, without = _Probe(architecture, module, gone, "absent").living(), architecture.without(gone)
    fixed, owned = without is architecture, owned_by(module, gone)
    at_inputs = _Probe(architecture, module, gone, "zeros").living() if fixed else {}
    del module  # the next one is as large
    alive, unused = _left(living, _heard(architecture), owned)
    if fixed:
        tensors = {name: TensorProbe(a, tuple(np.arange(n) for n in a.shape)) for name, a in alive.items()}
        only_inputs = all(np.array_equal(at_inputs[name], a) for name, a in living.items())
        return Provenance(gone, tensors, filled, True, only_inputs, unused)
    smaller = materialise(without.blank())
    shapes = {name: tuple(t.shape) for name, t in _floating_state(smaller).items()}
    kept = {name: _kept(name, a, shapes.get(name), architecture) for name, a in living.items()}
    tensors = {name: TensorProbe(a, kept[name]) for name, a in alive.items()}
    if extra := sorted(set(shapes) - set(alive)):
        raise _disagreement(architecture, extra[0], "the full model has no such tensor")
    unused = {name: number for name, number in unused.items() if kept[name] is not None}
    found = Provenance(gone, tensors, filled, True, False, unused)
    whole = materialise(architecture.blank())
    return replace(found, same_function=_same_function(architecture, whole, smaller, found))


@lru_cache(maxsize=1)
def _heard(architecture: Architecture) -> dict[str, Array]:
    """Return for each entry of the state whether any modality uses it; the same for all modalities to delete."""
    return _Probe(architecture, materialise(architecture.blank()), (), "fed").living()


def _left(
    living: Mapping[str, Array], heard: Mapping[str, Array], owned: Collection[str]
) -> tuple[dict[str, Array], dict[str, int]]:
    """Return which entries a cut leaves as they are, and how many of them no modality uses, by tensor.

    An unused entry goes where all goes that is in use around it: in its tensor, or else in the submodule of that, or
    in the one around it.
    """
    used, alive = (dict.fromkeys([""], 0) for _ in range(2))
    for name, a in living.items():
        for scope in _scopes(name):
            used[scope] = used.get(scope, 0) + int((a | heard[name]).sum())
            alive[scope] = alive.get(scope, 0) + int(a.sum())
    left, unused = {}, {}
    for name, a in living.items():
        innermost = next((scope for scope in _scopes(name) if used[scope]), "")
        if name.startswith(tuple(f"{part}." for part in owned)) or (innermost and not alive[innermost]):
            left[name] = _compact(np.zeros(a.shape, bool))
            continue
        left[name] = _compact(a | ~heard[name])
        if idle := int((~a & ~heard[name]).sum()):
            unused[name] = idle
    return left, unused


def _scopes(name: str) -> list[str]:
    """Return a tensor and the submodules around it, from the inside: `a.b.weight`, `a.b`, `a`, and all of it."""
    parts = name.split(".")
    return [*reversed([".".join(parts[:end]) for end in range(1, len(parts) + 1)]), ""]


def _compact(bits: Array) -> Array:
    """Return the same bits, as a view of a single one if all are equal."""
    return np.broadcast_to(bits.flat[0], bits.shape) if bits.size and (bits.all() or not bits.any()) else bits


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
    if not equal(first, again) or not equal(first, after_other):
        raise UsageError(
            "the module has hidden state: in evaluation mode, the same rows do not give the same outputs",
            key=_KEY,
            value=architecture.name,
            hint="keep nothing between two calls of forward; a registered buffer may change in training mode only",
        )
    if not equal(first, elsewhere):
        raise UsageError(
            "the module draws random numbers in evaluation mode",
            key=_KEY,
            value=architecture.name,
            hint="draw only if self.training, as nn.Dropout does",
        )
    if not equal(first[lacking], moved):
        raise UsageError(
            f"rows without {modality} still move with {modality}: with that of other rows in the batch",
            key=_KEY,
            value=architecture.name,
            hint="compute every row from its own features alone (no statistics over the batch in evaluation mode)",
        )


def equal(one: Tensor, other: Tensor, tolerance: float = _SAME) -> bool:
    """Whether two outputs are finite and the same up to rounding, relative to the largest number."""
    if one.shape != other.shape or not one.numel():
        return one.shape == other.shape
    largest, difference = float(one.double().abs().max()), float((one.double() - other.double()).abs().max())
    return math.isfinite(largest) and difference <= tolerance * max(largest, 1e-30)


def _floating_state(module: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and floating-point buffers that are stored, by every name that they have."""
    stored = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in stored.items() if tensor.is_floating_point()}


def _filled(architecture: Architecture, module: nn.Module) -> tuple[str, ...]:
    """Return the buffers that training fills from the data; one that only counts is none of them."""
    buffers = {name: tensor for name, tensor in module.named_buffers() if name in _floating_state(module)}
    before = {name: tensor.clone() for name, tensor in buffers.items()}
    modes = [(part, part.training) for part in module.modules()]
    after = []
    for draw in range(2):
        with seeded(_SEED, "filled"), torch.no_grad():
            module.train()(*example(architecture.modalities, _ROWS, seed=_SEED, draw=draw))
            after.append({name: module.get_buffer(name).clone() for name in buffers})
            for name, old in before.items():
                module.get_buffer(name).copy_(old)
    for part, mode in modes:
        part.training = mode
    return tuple(sorted(name for name in buffers if not torch.equal(after[0][name], after[1][name])))


@dataclass(frozen=True)
class _Probe:
    """A module with m* absent, or zeros that are said to be there, or fed."""

    architecture: Architecture
    module: nn.Module
    gone: tuple[str, ...]
    how: Literal["absent", "zeros", "fed"]

    def living(self) -> dict[str, Array]:
        """Return for each entry of the state whether it has a gradient."""
        state = _floating_state(self.module)
        tensors = {id(tensor): tensor for tensor in state.values()}
        living = {key: torch.zeros(tensor.shape, dtype=torch.bool) for key, tensor in tensors.items()}
        new = 0

        def note(tensor: Tensor) -> None:
            nonlocal new
            known, gradient = living[id(tensor)], tensor.grad
            tensor.grad = None  # one at a time: all together would be as large as the weights
            if gradient is not None:
                new -= int(known.sum())
                known |= gradient != 0
                new += int(known.sum())

        with evaluating(self.module), _differentiable(self.module), torch.enable_grad():
            handles: list[RemovableHandle] = [
                tensor.register_post_accumulate_grad_hook(note)  # type: ignore[no-untyped-call]
                for tensor in tensors.values()
            ]
            quiet = 0
            for draw in count():
                randomise(self.module, draw)
                value, new = self._value(draw), 0
                if value.requires_grad:
                    value.backward()  # type: ignore[no-untyped-call]
                quiet = 0 if new else quiet + 1
                for key, tensor in tensors.items():
                    tensor.requires_grad_(not bool(living[key].all()))  # what is all alive needs no gradient any more
                if quiet == PATIENCE or not any(tensor.requires_grad for tensor in tensors.values()):
                    break
            for handle in handles:
                handle.remove()
        return {name: _compact(living[id(tensor)].numpy()) for name, tensor in state.items()}

    def _value(self, draw: int) -> Tensor:
        """Return the product of all that the module computes with random cotangents."""
        vocabularies = [shape.vocabulary for shape in self.architecture.modalities.values() if shape.vocabulary]
        with StandIns(vocabularies, _generator("stand-ins", draw)):
            value = torch.stack(list(self._products(draw))).sum()
        return value if bool(torch.isfinite(value)) else torch.stack(list(self._products(draw))).sum()

    def _products(self, draw: int) -> Iterator[Tensor]:
        (features, available), cotangents = self._rows(draw), _generator("cotangents", draw)

        def product(value: Tensor) -> Tensor:
            return (value * torch.randn(value.shape, generator=cotangents)).sum()

        # What exists for m* alone and runs when it is absent (generators) is silent.
        with silenced(self.module, owned_by(self.module, self.gone)):
            output = self.module(features, available)
            yield product(output)
            if reconstruct := own_method(self.module, "reconstruct"):
                made: Mapping[str, Tensor] = reconstruct(features, available)
                yield from (product(x) for m, x in made.items() if m not in self.gone)
            if loss := own_method(self.module, "loss"):
                labels = stream(_SEED, "labels", str(draw)).integers(self.architecture.outputs, size=_ROWS)
                yield product(loss(output, torch.from_numpy(labels), features, available))

    def _rows(self, draw: int) -> tuple[Features, Available]:
        """Return rows of four kinds in turn: of full length or not, with all retained modalities or not."""
        shapes = self.architecture.modalities
        features, available = example(shapes, _ROWS, seed=_SEED, draw=draw)
        if draw % 2 == 0:
            features |= {lengths_of(m): torch.full((_ROWS,), s.size[0]) for m, s in shapes.items() if s.has_lengths}
        others = [m for m in shapes if m not in self.gone]
        if draw % 4 > 1 and len(others) > 1:
            for position, m in enumerate(others):
                available[m] = torch.arange(_ROWS) % len(others) != position
        for m in self.gone:
            features[m] = torch.zeros_like(features[m])
            available[m] = torch.full((_ROWS,), self.how == "zeros")
        return features, available


def _generator(name: str, draw: int) -> torch.Generator:
    return torch.Generator().manual_seed(stream_seed(_SEED, name, str(draw)) % 2**63)


def randomise(module: nn.Module, draw: int) -> None:
    """Replace every weight and every statistic of a module by a random value, in every third draw by smaller ones."""
    generator = _generator("weights", draw)
    spread = 0.5 if draw % 3 == 2 else 1.0  # where nothing saturates
    with torch.no_grad():
        for parameter in module.parameters():
            fan_in = math.prod(parameter.shape[1:]) if parameter.ndim > 1 else 1
            largest = spread * (3 / fan_in) ** 0.5
            parameter.uniform_(-largest, largest, generator=generator)
        for part in module.modules():
            if isinstance(part, _NormBase) and part.running_mean is not None and part.running_var is not None:
                part.running_mean.normal_(generator=generator)
                part.running_var.uniform_(0.5, 1.5, generator=generator)


@contextmanager
def _differentiable(module: nn.Module) -> Iterator[None]:
    """Within: every floating-point buffer takes part in gradients, those of BatchNorm by a formula of our own."""
    before = [(tensor, tensor.requires_grad) for tensor in _floating_state(module).values()]
    norms = [part for part in module.modules() if isinstance(part, _NormBase) and part.running_mean is not None]
    for tensor, _ in before:
        tensor.requires_grad_(True)
    for part in norms:
        part.forward = _with_statistics(part)
    try:
        yield
    finally:
        for part in norms:
            del part.forward
        for tensor, needed in before:
            tensor.requires_grad_(needed)


def _with_statistics(part: _NormBase) -> Any:  # noqa: ANN401 -- a bound forward
    def forward(x: Tensor) -> Tensor:
        columns = (-1, *[1] * (x.ndim - 2))
        mean, variance = part.running_mean, part.running_var
        if mean is None or variance is None:
            raise ValueError("a norm without statistics")
        x = (x - mean.view(columns)) / torch.sqrt(variance.view(columns) + part.eps)
        return x * part.weight.view(columns) + part.bias.view(columns) if part.affine else x

    return forward


@contextmanager
def silenced(module: nn.Module, names: Collection[str]) -> Iterator[None]:
    """Within: these submodules, and all in them, return zeros."""
    prefixes = tuple(f"{name}." for name in names)
    parts = [part for name, part in module.named_modules() if name in names or name.startswith(prefixes)]
    with ExitStack() as hooks:
        for part in parts:
            hooks.callback(part.register_forward_hook(_to_zeros).remove)
        yield


def _to_zeros(_: nn.Module, __: object, output: object) -> object:
    return pytree.tree_map_only(Tensor, lambda tensor: tensor * 0, output)


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
    retained = {m: s for m, s in architecture.modalities.items() if m not in provenance.gone}
    features, available = example(retained, _ROWS, seed=_SEED)
    with (
        evaluating(module),
        evaluating(smaller),
        torch.no_grad(),
        silenced(module, owned_by(module, provenance.gone)),
    ):
        return equal(module(features, available), smaller(features, available))

"""The contract of a model: what its factory gets, what its module computes, and what an absent modality is.

    factory(modalities: Mapping[str, Shape], outputs: int, **options) -> torch.nn.Module
    module(features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor      n × outputs: scores, or logits

`features` has n rows of each modality (float32; token ids int64) and, beside a sequence or token ids, `NAME_lengths`
(int64); `available` says for each modality which rows have it. A row that lacks a modality has zeros there and the
length 1, whatever was passed in: hooks of :meth:`Architecture.build` see to it. A module may also offer

    module.loss(outputs, labels, features, available) -> Tensor        one value for each row, instead of the task loss
    module.reconstruct(features, available) -> dict[str, Tensor]       what it makes of each modality from the others
    module.owned: dict[str, Sequence[str]]                             submodules that exist for one modality alone

There are two kinds of factory. One builds a smaller module for fewer modalities. One has a fixed shape, with all
modalities written into its code; it may ignore `available`, and `branches` then names for a modality the submodules
whose output belongs to it: the output is multiplied by `available`.
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from mbd.errors import MissingExtraError, UsageError
from mbd.files import sha256_file
from mbd.formats.features import Shape, lengths_of
from mbd.randomness import stream_seed
from mbd.registry import load
from mbd.tensors import Array

Features = dict[str, Tensor]
Available = dict[str, Tensor]
_KEY = "model.backbone"


def load_factory(path: str, key: str = _KEY) -> Callable[..., nn.Module]:
    """Return the factory at the import path `PACKAGE.MODULE:FACTORY`, which the parameter `key` names.

    Raises:
        UsageError: It cannot be imported, or is not callable.

    """
    try:
        factory = load(path)
    except MissingExtraError:
        raise
    except Exception as error:  # an import runs the user's code, which may raise anything
        raise UsageError(
            f"the factory cannot be imported: {type(error).__name__}: {error}",
            key=key,
            value=path,
            hint="install its package, or name its folder in PYTHONPATH",
        ) from error
    if not callable(factory):
        raise UsageError(f"the factory is a {type(factory).__name__}, which cannot be called", key=key, value=path)
    found: Callable[..., nn.Module] = factory
    return found


def source_digest(factory: Callable[..., nn.Module]) -> str:
    """Return the SHA-256 of the file that defines a factory.

    Raises:
        UsageError: It is not defined in a file.

    """
    try:
        file = inspect.getsourcefile(factory)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file():
        raise UsageError("the factory is not defined in a source file", key=_KEY, hint="write it into a module")
    return sha256_file(Path(file))


@dataclass(frozen=True)
class Architecture:
    """A factory, and all that it is called with."""

    factory: Callable[..., nn.Module]
    modalities: Mapping[str, Shape]
    outputs: int
    options: Mapping[str, Any] = field(default_factory=dict)
    branches: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """for a modality, the submodules whose output belongs to it"""
    name: str = "the factory"
    """its import path, for errors"""
    key: str = _KEY
    """the parameter that names it, for errors"""

    def build(self, *, seed: int = 0) -> nn.Module:
        """Return a module in which absent modalities are zeros, and `branches` of absent modalities too.

        Args:
            seed: Of torch's generator while the factory runs; it is as before afterwards.

        Raises:
            UsageError: The factory fails, returns no module, or `branches` does not fit it.

        """
        kept = dict(self.modalities)
        with seeded(seed, "factory"):
            try:
                module = self.factory(kept, self.outputs, **self.options)
            except Exception as error:  # the user's code may raise anything
                raise UsageError(
                    f"the factory fails for the shapes given: {type(error).__name__}: {error}",
                    key=self.key,
                    value=f"{self.name} for {describe_shapes(kept)}",
                    hint="it is called with (modalities, outputs, **model.options)",
                ) from error
        if not isinstance(module, nn.Module):
            raise UsageError(
                f"the factory returned a {type(module).__name__}, not a torch.nn.Module", key=self.key, value=self.name
            )
        state = _Absence(kept)
        module.register_forward_pre_hook(state.before)
        for modality, names in self.branches.items():
            if modality in kept:
                self._attach(module, state, modality, names)
        return module

    def without(self, modalities: Collection[str]) -> "Architecture":
        """Return the architecture of a model that never takes these modalities.

        That is the smaller one if the factory builds a smaller one, and the same if its shape is fixed.
        """
        smaller = replace(self, modalities={m: s for m, s in self.modalities.items() if m not in modalities})
        try:
            shapes = [_state_shapes(architecture.build()) for architecture in (self, smaller)]
        except UsageError:  # all modalities are written into the factory's code
            self.build()  # unless it fails anyway
            return self
        return self if shapes[0] == shapes[1] else smaller

    def check(self, module: nn.Module) -> None:
        """Run a module once and refuse an output that is not one row of `outputs` numbers for each row.

        Raises:
            UsageError: The module fails, or its output has another shape.

        """
        for rows in (2, 3):
            found = self._run(module, *example(self.modalities, rows, seed=0))
            if not isinstance(found, Tensor) or tuple(found.shape) != (rows, self.outputs):
                described = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise UsageError(
                    f"the module must return one row of {self.outputs} numbers for each of {rows} rows",
                    key=self.key,
                    value=f"{self.name} returned {described}",
                    hint="see docs/models.md: scores have one column, classes one column each",
                )

    def _run(self, module: nn.Module, features: Features, available: Available) -> Any:  # noqa: ANN401 -- user's code
        try:
            with evaluating(module), seeded(0, "run"), torch.no_grad():
                return module(features, available)
        except UsageError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise UsageError(
                f"the module fails on rows of these shapes: {type(error).__name__}: {error}",
                key=self.key,
                value=f"{self.name} for {describe_shapes(self.modalities)}",
                hint="it is called with (features, available), both by modality",
            ) from error

    def _attach(self, module: nn.Module, state: "_Absence", modality: str, names: Sequence[str]) -> None:
        """Multiply the outputs of submodules by the availability of a modality."""
        submodules = dict(module.named_modules())
        for name in names:
            if name not in submodules:
                near = [known for known in submodules if known.rpartition(".")[2] == name.rpartition(".")[2]]
                raise UsageError(
                    f"the module has no submodule {name!r}",
                    key=f"model.branches.{modality}",
                    value=name,
                    hint=f"it has {', '.join(near or [n for n in submodules if n and '.' not in n])}",
                )
        shapes = []
        for rows in (2, 3):
            with _recording([submodules[name] for name in names]) as seen:
                self._run(module, *example(state.shapes, rows, seed=0))
            shapes.append(seen)
        for name, two, three in zip(names, *shapes, strict=True):
            tensors = [(a, b) for a, b in zip(two, three, strict=False) if a is not None and b is not None]
            axes = [row_axis(a, b) for a, b in zip(two, three, strict=False)]
            if not tensors or len([axis for axis in axes if axis is not None]) < len(tensors):
                raise UsageError(
                    f"the output of {name} has no axis of rows, so it cannot be switched off for single rows"
                    if two
                    else f"the submodule {name} never runs",
                    key=f"model.branches.{modality}",
                    value=name,
                    hint="name a submodule that returns tensors with one entry for each row",
                )
            submodules[name].register_forward_hook(state.after(modality, axes))


def materialise(module: nn.Module) -> nn.Module:
    """Replace every parametrised weight of a module by the tensor that it stands for; return the module."""
    with evaluating(module):  # a spectral norm changes when it is used in training mode
        for part in [part for part in module.modules() if parametrize.is_parametrized(part)]:
            for name in list(part.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(part, name, leave_parametrized=True)
    return module


def _state_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


class _Absence:
    """Hooks that make an absent modality zeros: at the inputs, and at the outputs of branches."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes = dict(shapes)
        self._available: Available = {}

    def before(self, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Features, Available]:
        features, available = arguments
        filled, there = zeros_where_absent(self.shapes, features, available)
        self._available = there
        return filled, there

    def after(self, modality: str, axes: Sequence[int | None]) -> Callable[[nn.Module, Any, Any], Any]:
        def multiply(_: nn.Module, __: Any, output: Any) -> Any:  # noqa: ANN401 -- any tree of tensors
            leaves, tree = pytree.tree_flatten(output)
            there, switched = self._available[modality], []
            for leaf, axis in zip(leaves, axes, strict=True):
                if axis is None:
                    switched.append(leaf)
                    continue
                bits = there.reshape([-1 if a == axis else 1 for a in range(leaf.ndim)])
                switched.append(leaf * bits.to(leaf.dtype))
            return pytree.tree_unflatten(switched, tree)

        return multiply


def zeros_where_absent(
    shapes: Mapping[str, Shape], features: Mapping[str, Tensor], available: Mapping[str, Tensor]
) -> tuple[Features, Available]:
    """Return features and availability of every modality: zeros, and length 1, where a row lacks it.

    A modality that is not given at all is absent in all rows.
    """
    known = next(x for m, x in features.items() if m in shapes)
    filled, there = {}, {}
    for m, shape in shapes.items():
        if m in features:
            bits = available[m].to(torch.bool)
            x = features[m].long() if shape.kind == "tokens" else features[m]
            if shape.kind != "tokens" and x.dtype not in (torch.float32, torch.float64):
                x = x.float()  # pixels as bytes, float16: stored small, computed as float32
            filled[m] = torch.where(bits.reshape(-1, *[1] * (x.ndim - 1)), x, torch.zeros((), dtype=x.dtype))
            lengths = features.get(lengths_of(m))
        else:
            bits = torch.zeros(len(known), dtype=torch.bool, device=known.device)
            kind = torch.int64 if shape.kind == "tokens" else torch.float32
            filled[m] = torch.zeros((len(known), *shape.size), dtype=kind, device=known.device)
            lengths = None
        if shape.has_lengths:
            full = torch.full((len(known),), shape.size[0], dtype=torch.int64, device=known.device)
            filled[lengths_of(m)] = torch.where(bits, full if lengths is None else lengths, torch.ones_like(full))
        there[m] = bits
    return filled, there


def example(shapes: Mapping[str, Shape], rows: int, *, seed: int, draw: int = 0) -> tuple[Features, Available]:
    """Return random rows that have every modality; token ids of successive draws go through the whole vocabulary."""
    features, available = {}, {}
    for m, shape in shapes.items():
        generator = torch.Generator().manual_seed(stream_seed(seed, "example", m, str(draw)) % 2**63)
        if shape.kind == "tokens":
            vocabulary, count = shape.vocabulary or 1, rows * shape.size[0]
            ids = (torch.arange(count) + draw * count) % vocabulary
            features[m] = ids[torch.randperm(count, generator=generator)].reshape(rows, *shape.size)
        else:
            features[m] = torch.randn((rows, *shape.size), generator=generator)
        if shape.has_lengths:
            lengths = torch.randint(1, shape.size[0] + 1, (rows,), generator=generator)
            lengths[draw % rows] = shape.size[0]
            features[lengths_of(m)] = lengths
        available[m] = torch.ones(rows, dtype=torch.bool)
    return features, available


def to_tensor(array: Array) -> Tensor:
    """Return features as a tensor: float64 as float32, all else as stored, until the module's entry takes it."""
    kind = np.float32 if array.dtype == np.float64 else array.dtype
    return torch.from_numpy(np.require(array, kind, ["C", "W"]))


def describe_shapes(shapes: Mapping[str, Shape]) -> str:
    """Return shapes for an error message: `text vector 768, audio sequence 50 × 74`."""
    return ", ".join(f"{m} {shape}" for m, shape in shapes.items())


@contextmanager
def seeded(seed: int, *names: str) -> Iterator[None]:
    """Within: torch's generator starts at `seed` and `names`; afterwards it is as before."""
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed also writes down the call stack, for each kind of device that is not in use yet
        start = torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed
        start(stream_seed(seed, "torch", *names) % 2**63)
        yield


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Within: the module is in evaluation mode."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextmanager
def _recording(submodules: Sequence[nn.Module]) -> Iterator[list[list[tuple[int, ...] | None]]]:
    """Within: the shapes of what submodules return in their last call are kept, in their order."""
    seen: list[list[tuple[int, ...] | None]] = [[] for _ in submodules]

    def keep(place: int) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:  # noqa: ANN401
            leaves = pytree.tree_leaves(output)
            seen[place] = [tuple(leaf.shape) if isinstance(leaf, Tensor) else None for leaf in leaves]

        return hook

    handles = [part.register_forward_hook(keep(place)) for place, part in enumerate(submodules)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def output_shapes(
    module: nn.Module, submodules: Sequence[nn.Module], features: Features, available: Available
) -> list[list[tuple[int, ...] | None]]:
    """Return the shapes of the tensors that submodules return in their last call, in their order."""
    with _recording(submodules) as seen, evaluating(module), seeded(0, "run"), torch.no_grad():
        module(features, available)
    return seen


def row_axis(two: tuple[int, ...] | None, three: tuple[int, ...] | None) -> int | None:
    """Return the axis that is 2 long for two rows and 3 long for three, if there is exactly one that changes."""
    if two is None or three is None:
        return None
    changed = [axis for axis, sizes in enumerate(zip(two, three, strict=False)) if sizes[0] != sizes[1]]
    if len(two) != len(three) or len(changed) != 1 or (two[changed[0]], three[changed[0]]) != (2, 3):
        return None
    return changed[0]

"""The contract of a model: what its factory gets, what its module computes, and what an absent modality is.

    factory(modalities: Mapping[str, Shape], outputs: int, **options) -> torch.nn.Module
    module(features: dict[str, Tensor], available: dict[str, Tensor]) -> Tensor      n × outputs: scores, or logits

`features` has n rows of each modality (float32; token ids int64) and, beside a sequence or token ids, `NAME_lengths`
(int64); `available` says for each modality which rows have it. A row that lacks a modality has zeros there and the
length 1, whatever was passed in: hooks of :meth:`Architecture.build` see to it. A module may also offer

    module.loss(outputs, labels, features, available) -> Tensor        one value for each row, instead of the task loss
    module.reconstruct(features, available) -> dict[str, Tensor]       what it makes of each modality from the others
    module.owned: dict[str, Sequence[str]]                             submodules that exist for one modality alone

A method counts if it has parameters of these names. Whatever else a module has under these names is its own affair: it
is never called, and a warning says so.

There are two kinds of factory. One builds a smaller module for fewer modalities. One has a fixed shape, with all
modalities written into its code; it may ignore `available`, and `branches` then names for a modality the submodules
whose output belongs to it: the output is multiplied by `available`. A module of fixed shape whose `forward` is none of
the above is described by `inputs` and `output` (:mod:`mbd.model.published`).
"""

import inspect
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from mbd.errors import MissingExtraError, UsageError
from mbd.files import sha256_file
from mbd.formats.features import Shape, VectorShape, lengths_of
from mbd.model.published import Call, Inputs, construct
from mbd.randomness import stream_seed
from mbd.registry import load
from mbd.tensors import Array

Features = dict[str, Tensor]
Available = dict[str, Tensor]
_Size = tuple[int, ...] | None
_KEY = "model.backbone"
_METHODS = {"loss": ("outputs", "labels", "features", "available"), "reconstruct": ("features", "available")}
_LOG = logging.getLogger(__name__)
NO_ROWS = -1
"""the axis of rows of a tensor that has none"""


def load_factory(path: str, key: str = _KEY) -> Callable[..., nn.Module]:
    """Return the factory at the import path `PACKAGE.MODULE:FACTORY`, which the parameter `key` names.

    A module that is not installed may be in the current folder.

    Raises:
        UsageError: It cannot be imported, or is not callable.

    """
    top = path.partition(":")[0].partition(".")[0]
    if not find_spec(top) and any(Path(name).exists() for name in (f"{top}.py", top)):
        sys.path.append(str(Path.cwd()))
    try:
        factory = load(path)
    except MissingExtraError:
        raise
    except Exception as error:  # an import runs the user's code, which may raise anything
        raise UsageError(
            f"the factory cannot be imported: {type(error).__name__}: {error}",
            key=key,
            value=path,
            hint="install its package, run in its folder, or name that in PYTHONPATH",
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


@dataclass(frozen=True, eq=False)
class Architecture:
    """A factory, and all that it is called with; the order of modalities counts where two are compared."""

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
    inputs: Inputs = ()
    """the arguments of `forward`, where they are not those of the contract"""
    output: str | int | None = None
    """what of that which `forward` returns is the output; None: the whole"""

    def build(self, *, seed: int = 0) -> nn.Module:
        """Return a module in which absent modalities are zeros, and `branches` of absent modalities too.

        Args:
            seed: Of torch's generator while the factory runs; it is as before afterwards.

        Raises:
            UsageError: The factory fails, returns no module, or `inputs` or `branches` do not fit it.

        """
        return self._prepared(self._made(seed))

    def blank(self) -> nn.Module:
        """Return the same for weights to be put in: all parameters are zero.

        The factory, which may load pretrained weights, is called once for any number of them.
        """
        hollow = _hollow(replace(self, branches={}))
        return self._prepared(self._made(0) if hollow is None else _with_zeros(hollow, "cpu"))

    def __hash__(self) -> int:
        return hash(repr(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Architecture) and other.factory is self.factory and repr(other) == repr(self)

    @property
    def _call_form(self) -> Call:
        return Call(self.inputs, self.output, self.outputs)

    def _made(self, seed: int) -> nn.Module:
        """Call the factory."""
        self._call_form.refuse_unknown(self.modalities)
        with seeded(seed, "factory"):
            try:
                module = self._construct()
            except Exception as error:  # the user's code may raise anything
                raise UsageError(
                    f"the factory fails for the shapes given: {type(error).__name__}: {error}",
                    key=self.key,
                    value=f"{self.name} for {describe_shapes(self.modalities)}",
                    hint="it is called with model.options and what of modalities and outputs its signature names"
                    if self.inputs
                    else "it is called with (modalities, outputs, **model.options); one that is not written for this "
                    "needs model.inputs",
                ) from error
        if not isinstance(module, nn.Module):
            raise UsageError(
                f"the factory returned a {type(module).__name__}, not a torch.nn.Module", key=self.key, value=self.name
            )
        return module

    def _prepared(self, module: nn.Module) -> nn.Module:
        """Attach what makes absent modalities zeros."""
        state = _Absence(self.modalities, self._call_form)
        module.register_forward_pre_hook(state.before, with_kwargs=True)
        if self._call_form:
            module.register_forward_hook(self._call_form.pick)
        for modality, names in self.branches.items():
            if modality in self.modalities:
                self._attach(module, state, modality, names)
        return module

    def _construct(self) -> Any:  # noqa: ANN401 -- whatever the factory returns
        shapes = {m: VectorShape(s.width) if s.kind == "vector" else s for m, s in self.modalities.items()}
        if self.inputs:
            return construct(self.factory, {**shapes, "modalities": shapes, "outputs": self.outputs}, self.options)
        return self.factory(shapes, self.outputs, **self.options)

    def without(self, modalities: Collection[str]) -> "Architecture":
        """Return the architecture of a model that never takes these modalities.

        That is the smaller one if the factory builds a smaller one, and the same if its shape is fixed.
        """
        if self.inputs:
            return self
        smaller = replace(self, modalities={m: s for m, s in self.modalities.items() if m not in modalities})
        return smaller if _differ(self, smaller) else self

    def check(self, module: nn.Module) -> None:
        """Run a module once with every modality and once without each, and what else it offers of the contract.

        Raises:
            UsageError: The module fails, or returns something of another shape than the contract says.

        """
        for rows in (2, 3):
            features, available = example(self.modalities, rows, seed=0)
            self._check_rows("the module", self.run(module, features, available), (rows, self.outputs))
        for absent in self.modalities if len(self.modalities) > 1 else ():
            self.run(module, features, {**available, absent: torch.zeros_like(available[absent])})
        self._check_methods(module, features, available)
        for name in self._ignored(module):
            _warn_once(f"{self.name} has a `{name}` of its own, which is not that of docs/models.md and is not used")
        for modality in self._call_form.unused(self.modalities):
            _warn_once(f"{self.name} never gets {modality}: model.inputs does not name it")

    def run(self, module: nn.Module, features: Features, available: Available, *, seed: int = 0) -> Any:  # noqa: ANN401
        """Return what a module computes in evaluation mode.

        Raises:
            UsageError: It fails.

        """
        missing = [m for m, bits in available.items() if not bits.all()]
        without = f" without {', '.join(missing)}" if missing else ""
        return self._call(module, f"the module fails on rows of these shapes{without}", seed, features, available)

    def row_axes(self, module: nn.Module, names: Sequence[str]) -> dict[str, list[int | None]]:
        """Return which axis of what submodules return in their last call is that of the rows.

        For each leaf of the output: :data:`NO_ROWS` for a tensor without such an axis, None for what is no tensor.

        Raises:
            UsageError: The module fails.

        """
        runs = []
        for rows in (2, 3):
            seen: dict[str, list[_Size]] = {name: [] for name in names}

            def keep(name: str, leaves: list[Any], seen: dict[str, list[_Size]] = seen) -> None:
                seen[name] = [tuple(leaf.shape) if isinstance(leaf, Tensor) else None for leaf in leaves]

            with listening({name: module.get_submodule(name) for name in names}, keep):
                self.run(module, *example(self.modalities, rows, seed=0))
            runs.append(seen)
        two, three = runs
        return {
            name: [_row_axis(*sizes) for sizes in zip(two[name], three[name], strict=True)]
            if len(two[name]) == len(three[name])
            else [NO_ROWS]
            for name in names
        }

    def _call(self, module: nn.Module, problem: str, seed: int, *given: object, of: str = "__call__") -> Any:  # noqa: ANN401
        try:
            with evaluating(module), seeded(seed, "run"), torch.no_grad():
                return getattr(module, of)(*given)
        except UsageError:
            raise
        except Exception as error:  # the user's code may raise anything
            ours = ", ".join(_METHODS.get(of, _METHODS["reconstruct"]))
            raise UsageError(
                f"{problem}: {type(error).__name__}: {error}",
                key=self.key,
                value=f"{self.name} for {describe_shapes(self.modalities)}",
                hint="compare model.inputs with the arguments of its forward, and model.options with the shapes"
                if self.inputs
                else f"it is called with ({ours}), features by modality; one that is not written for this needs "
                "model.inputs",
            ) from error

    def _check_methods(self, module: nn.Module, features: Features, available: Available) -> None:
        """Call the `loss` and the `reconstruct` of a module once."""
        outputs = self.run(module, features, available)
        rows, kind = len(outputs), torch.int64 if self.outputs > 1 else torch.float32
        labels = torch.zeros(rows, dtype=kind)
        if own_method(module, "loss"):
            found = self._call(module, "`loss` fails", 0, outputs, labels, features, available, of="loss")
            self._check_rows("`loss`", found, (rows,))
        if own_method(module, "reconstruct"):
            made = self._call(module, "`reconstruct` fails", 0, features, available, of="reconstruct")
            if not isinstance(made, Mapping):
                raise self._other_output("`reconstruct` must return a tensor for each modality", made)
            for modality, shape in self.modalities.items():
                if modality in made:
                    self._check_rows(f"`reconstruct` of {modality}", made[modality], (rows, *shape.size))

    def _check_rows(self, what: str, found: object, wanted: tuple[int, ...]) -> None:
        if not isinstance(found, Tensor) or tuple(found.shape) != wanted:
            of_each = f"one row of {' × '.join(map(str, wanted[1:]))} numbers" if wanted[1:] else "one number"
            raise self._other_output(f"{what} must return {of_each} for each of {wanted[0]} rows", found)

    def _other_output(self, problem: str, found: object) -> UsageError:
        described = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        return UsageError(
            problem,
            key=self.key,
            value=f"{self.name} returned {described}",
            hint="see docs/models.md: scores have one column, classes one column each",
        )

    def _ignored(self, module: nn.Module) -> list[str]:
        """Return the names of the contract under which the module has something else."""
        has = {name: own_method(module, name) is not None for name in _METHODS} | {"owned": bool(_owned(module))}
        return [name for name, is_ours in has.items() if not is_ours and getattr(module, name, None) is not None]

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
        for name, axes in self.row_axes(module, names).items():
            if NO_ROWS in axes or set(axes) <= {None}:
                raise UsageError(
                    f"the output of {name} has no axis of rows, so it cannot be switched off for single rows"
                    if axes
                    else f"the submodule {name} never runs",
                    key=f"model.branches.{modality}",
                    value=name,
                    hint="name a submodule that returns tensors with one entry for each row",
                )
            submodules[name].register_forward_hook(state.after(modality, axes))


def own_method(module: nn.Module, name: str) -> Callable[..., Any] | None:
    """Return the `loss` or `reconstruct` of a module, if that is a method with the parameters of the contract."""
    found, wanted = getattr(module, name, None), _METHODS[name]
    if not callable(found) or isinstance(found, nn.Module):
        return None
    try:
        taken = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return None
    named = tuple(each.name for each in taken[: len(wanted)]) == wanted
    return found if named and all(each.default is not each.empty for each in taken[len(wanted) :]) else None


def owned_by(module: nn.Module, modalities: Collection[str]) -> list[str]:
    """Return the submodules that a module says exist for one of these modalities alone."""
    return [name for m, names in _owned(module).items() if m in modalities for name in names]


def _owned(module: nn.Module) -> Mapping[str, Sequence[str]]:
    declared, parts = getattr(module, "owned", None), dict(module.named_modules())
    if not isinstance(declared, Mapping) or not all(isinstance(names, list | tuple) for names in declared.values()):
        return {}
    return declared if all(name in parts for names in declared.values() for name in names) else {}


@cache
def _warn_once(message: str) -> None:
    _LOG.warning(message)


def materialise(module: nn.Module) -> nn.Module:
    """Replace every parametrised weight of a module by the tensor that it stands for; return the module."""
    with evaluating(module):  # a spectral norm changes when it is used in training mode
        for part in [part for part in module.modules() if parametrize.is_parametrized(part)]:
            for name in list(part.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(part, name, leave_parametrized=True)
    return module


@lru_cache(maxsize=64)
def _differ(full: Architecture, smaller: Architecture) -> bool:
    """Whether a factory builds something else for fewer modalities, and that runs."""
    shapes = _state_shapes(full.blank())
    try:
        if shapes == _state_shapes(module := smaller.blank()):
            return False
        smaller.run(module, *example(smaller.modalities, 2, seed=0))
    except UsageError:  # all modalities are written into the factory's code
        return False
    return True


def _state_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


@lru_cache(maxsize=4)
def _hollow(architecture: Architecture) -> nn.Module | None:
    """Return what a factory builds, without the values of its parameters; None: it cannot be copied."""
    module = architecture._made(0)
    if any(parametrize.is_parametrized(part) for part in module.modules()):
        return None  # copies share a class, and with it what is removed from one of them
    try:
        return _with_zeros(module, "meta")
    except Exception:  # a module may hold anything: locks, files, tensors that were computed
        return None


def _with_zeros(module: nn.Module, device: str) -> nn.Module:
    """Return a copy of a module whose parameters are zeros on a device."""
    zeros = {id(p): nn.Parameter(torch.zeros_like(p, device=device), p.requires_grad) for p in module.parameters()}
    return deepcopy(module, zeros)


class _Absence:
    """Hooks that make an absent modality zeros: at the inputs, and at the outputs of branches."""

    def __init__(self, shapes: Mapping[str, Shape], call: Call) -> None:
        self.shapes, self._call = dict(shapes), call
        self._available: Available = {}

    def before(
        self, _: nn.Module, arguments: tuple[Any, ...], __: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        features, available = arguments
        filled, there = zeros_where_absent(self.shapes, features, available)
        self._available = there
        return self._call.arguments(self.shapes, filled, there) if self._call.inputs else ((filled, there), {})

    def after(self, modality: str, axes: Sequence[int | None]) -> Callable[[nn.Module, Any, Any], Any]:
        def multiply(_: nn.Module, __: Any, output: Any) -> Any:  # noqa: ANN401 -- any tree of tensors
            leaves, tree = pytree.tree_flatten(output)
            there, switched = self._available[modality], []
            for leaf, axis in zip(leaves, axes, strict=True):
                if axis is None:  # no tensor
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
def listening(parts: Mapping[Any, nn.Module], keep: Callable[[Any, list[Any]], None]) -> Iterator[None]:
    """Within: `keep` gets the key of a submodule and the leaves of what it returns, call after call."""

    def hook(key: Any) -> Callable[..., None]:  # noqa: ANN401 -- as the caller names them
        return lambda _, __, output: keep(key, pytree.tree_leaves(output))

    with ExitStack() as hooks:
        for key, part in parts.items():
            hooks.callback(part.register_forward_hook(hook(key)).remove)
        yield


def _row_axis(two: _Size, three: _Size) -> int | None:
    """Return the axis that is 2 long for two rows and 3 long for three, if it is the only one that changes."""
    if two is None or three is None:
        return None
    changed = [axis for axis, sizes in enumerate(zip(two, three, strict=False)) if sizes[0] != sizes[1]]
    if len(two) != len(three) or len(changed) != 1 or (two[changed[0]], three[changed[0]]) != (2, 3):
        return NO_ROWS
    return changed[0]

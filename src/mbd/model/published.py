"""Modules that were not written for this package: how they are constructed, called, and what of their output counts.

`model.inputs` lists the arguments of `forward`, by position or by name. Each is a modality, or what is known about one:

    NAME               n × … as in :mod:`mbd.model.contract`; zeros where a row lacks it
    NAME_lengths       n, int64: positions that count
    NAME_mask          n × T, int64: 1 at positions that count, 0 behind them (attention masks of Hugging Face)
    NAME_padding       n × T, bool: true behind the positions that count (key padding masks of torch)
    NAME_available     n, bool: which rows have the modality

A dictionary among the positions is passed as one, for modules that take a batch. `model.output` leads from what
`forward` returns to n × outputs numbers: keys, attributes or positions, separated by dots. Both happen in hooks of the
module itself, so its submodules and weights keep the names that they have.

A factory for such a module is called with the arguments that its signature names: a modality (its shape; `eye_gaze` is
"eye gaze"), `modalities`, `outputs`, and everything of `model.options`. A model of transformers is built from its
configuration: `model.options` is what its `config.json` says.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mbd.errors import UsageError
from mbd.formats.features import Shape, lengths_of

Tensors = dict[str, Tensor]
Inputs = Sequence[str | Mapping[str, str]] | Mapping[str, str]


def _mask(shape: Shape, lengths: Tensor) -> Tensor:
    return (torch.arange(shape.size[0], device=lengths.device) < lengths[:, None]).long()


_DERIVED: dict[str, Callable[[Shape, Tensor], Tensor]] = {
    "_mask": _mask,
    "_padding": lambda shape, lengths: _mask(shape, lengths) == 0,
}
_AVAILABLE = "_available"


@dataclass(frozen=True)
class Call:
    """How `forward` of a module is called, and what of its output is taken."""

    inputs: Inputs
    output: str | int | None
    outputs: int
    """numbers for each row"""

    def __bool__(self) -> bool:
        return bool(self.inputs) or self.output is not None

    def refuse_unknown(self, shapes: Mapping[str, Shape]) -> None:
        """Refuse a name among the inputs that stands for nothing.

        Raises:
            UsageError: There is one.

        """
        for name in _names(self.inputs):
            if name not in (known := list(_known(shapes))):
                raise UsageError(
                    f"there is no input {name!r}", key="model.inputs", value=name, hint=f"there are {', '.join(known)}"
                )

    def unused(self, shapes: Mapping[str, Shape]) -> list[str]:
        """Return the modalities that `forward` never gets."""
        return [m for m in shapes if self.inputs and m not in _names(self.inputs)]

    def arguments(
        self, shapes: Mapping[str, Shape], features: Tensors, available: Tensors
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of `forward`, by position and by name."""

        def value(name: str) -> Tensor:
            if name in features:  # a modality, or its lengths
                return features[name]
            modality, underscore, kind = name.rpartition("_")
            if underscore + kind == _AVAILABLE:
                return available[modality]
            return _DERIVED[underscore + kind](shapes[modality], features[lengths_of(modality)])

        def one(argument: str | Mapping[str, str]) -> Any:  # noqa: ANN401 -- a tensor, or a dictionary of them
            return value(argument) if isinstance(argument, str) else {key: value(of) for key, of in argument.items()}

        if isinstance(self.inputs, Mapping):
            return (), {name: value(of) for name, of in self.inputs.items()}
        return tuple(one(argument) for argument in self.inputs), {}

    def pick(self, module: nn.Module, _: object, found: object) -> object:
        """Return the output for each row of what a module returned; a hook of it.

        Raises:
            UsageError: It is not there.

        """
        picked = found
        try:
            for part in [] if self.output is None else str(self.output).split("."):
                picked = _step(picked, part)
        except (LookupError, AttributeError, TypeError) as error:
            raise self._elsewhere(f"{type(module).__name__} returns nothing at {self.output!r}", found) from error
        if not isinstance(picked, Tensor):
            what = type(picked).__name__
            raise self._elsewhere(f"{type(module).__name__} returns a {what}, not a tensor", found)
        return picked[:, None] if picked.ndim == 1 and self.outputs == 1 else picked

    def _elsewhere(self, problem: str, found: object) -> UsageError:
        tensors = dict(_tensors(found))
        fitting = [path for path, x in tensors.items() if x.ndim in (1, 2) and x.shape[1:] in ((), (self.outputs,))]
        described = ", ".join(f"{path} ({' × '.join(map(str, x.shape))})" for path, x in tensors.items())
        return UsageError(
            problem,
            key="model.output",
            value=self.output,
            hint=f"it returns {described or 'no tensor'}"
            + (f"; write --set model.output={fitting[0]}" if fitting else ""),
        )


def construct(factory: Callable[..., Any], known: Mapping[str, Any], options: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return what a factory builds from its options and from what its signature names of `known`."""
    if configuration := getattr(factory, "config_class", None):  # a model of transformers
        return factory(configuration.from_dict({"num_labels": known["outputs"], **options}))
    named = inspect.signature(factory).parameters
    arguments = {re.sub(r"\W", "_", name): value for name, value in known.items()}  # a modality's name may have blanks
    return factory(**{**{name: value for name, value in arguments.items() if name in named}, **options})


def _names(inputs: Inputs) -> Iterator[str]:
    for argument in inputs.values() if isinstance(inputs, Mapping) else inputs:
        yield from [argument] if isinstance(argument, str) else argument.values()


def _known(shapes: Mapping[str, Shape]) -> Iterator[str]:
    for modality, shape in shapes.items():
        yield from (modality, f"{modality}{_AVAILABLE}")
        if shape.has_lengths:
            yield lengths_of(modality)
            yield from (f"{modality}{kind}" for kind in _DERIVED)


def _step(found: Any, part: str) -> Any:  # noqa: ANN401 -- anything that a module returns
    if isinstance(found, Mapping):
        return found[part]
    return found[int(part)] if part.lstrip("-").isdigit() else getattr(found, part)


def _tensors(found: object, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in what a module returned, with the paths that lead to them."""
    if isinstance(found, Tensor):
        yield path or "a tensor", found
        return
    parts: Mapping[Any, Any] = {}
    if isinstance(found, Mapping):
        parts = found
    elif isinstance(found, list | tuple):
        parts = dict(enumerate(found))
    elif hasattr(found, "__dict__"):
        parts = vars(found)
    for name, part in parts.items():
        yield from _tensors(part, f"{path}.{name}" if path else str(name))

"""Any PyTorch module as a model that is stored and loaded: its factory, its weights, and what each tensor could see.

Training reads all modalities for every tensor, so each `sees` all of them; `belongs_to` comes from
:mod:`mbd.model.probing`. A model of fixed shape is built for all modalities also where it takes fewer; those
that its record does not list are closed (:func:`from_tensors`).
"""

import logging
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _WeightNorm

from mbd.errors import DataError, MbdError, UsageError
from mbd.formats.features import Shape, Task
from mbd.formats.model import ModelRecord, ModuleSpec, TensorRecord
from mbd.model.attachment import Attachment, attach
from mbd.model.branches import closing
from mbd.model.checkpoint import describe
from mbd.model.contract import (
    NO_ROWS,
    Architecture,
    listening,
    load_factory,
    materialise,
    own_method,
    source_digest,
    to_tensor,
    zeros_where_absent,
)
from mbd.model.joint import to_array, to_tensor_dict
from mbd.model.probing import Provenance, probe
from mbd.params.learning import ModelSettings
from mbd.randomness import stream
from mbd.tensors import Array

_LOG = logging.getLogger(__name__)
_PLACES, _UNITS, _ROWS_AT_ONCE = 64, 256, 512
_PARAMETRISED = re.compile(r"(^|.*\.)parametrizations\.([^.]+)\..+$")


class ModuleBackbone:
    """A module with its weights: numpy in, numpy out."""

    def __init__(
        self, module: nn.Module, architecture: Architecture, task: Task, *, closed: Collection[str] = ()
    ) -> None:
        """Describe a module with its weights; `closed` modalities are absent for it, whatever is passed in."""
        self.module, self.architecture, self.task = module.eval(), architecture, task
        self._closed = frozenset(closed)
        if self._closed:
            # before the hook that fills absent modalities with zeros
            module.register_forward_pre_hook(lambda _, given: (given[0], self._open(given[1])), prepend=True)

    def _open(self, available: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {m: torch.zeros_like(bits) if m in self._closed else bits for m, bits in available.items()}

    @property
    def inputs(self) -> Mapping[str, Shape]:
        """Everything that can be fed to the module; of a fixed shape, also what the model must not be given."""
        return self.architecture.modalities

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        """Return scores (n), or class probabilities (n × classes)."""
        rows = len(next(iter(available.values())))
        parts = []
        for start in range(0, rows, _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            given = {name: to_tensor(x[part]) for name, x in features.items()}
            there = {m: torch.from_numpy(np.array(bits[part], bool)) for m, bits in available.items()}
            with torch.inference_mode():
                output = self.module(given, there)
                parts.append(output.softmax(dim=1) if self.task == "classification" else output[:, 0])
        return to_array(torch.cat(parts))

    def put(self, tensors: Mapping[str, Array]) -> None:
        """Replace the weights."""
        load_state(self.module, tensors, self.architecture.name)

    def reconstructions(
        self, features: Mapping[str, Array], available: Mapping[str, Array], modality: str
    ) -> dict[str, Array]:
        """Return what the module's own `reconstruct` makes of a modality; empty where it has none."""
        own = own_method(self.module, "reconstruct")
        if own is None:
            return {}
        given = {name: to_tensor(x) for name, x in features.items()}
        there = {m: torch.from_numpy(np.array(bits, bool)) for m, bits in available.items()}
        with torch.inference_mode():
            found = own(*zeros_where_absent(self.architecture.modalities, given, self._open(there)))
        return {"generator": to_array(found[modality])} if modality in found else {}

    def activations(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return what submodules compute for each row, pooled over all other axes, by their names.

        Bounded for large modules: at most 64 submodules, spread evenly, and 256 units of each, drawn once.
        """
        found: dict[str, list[Array]] = {name: [] for name in self._places}
        rows = len(next(iter(available.values())))

        def keep(name: str, leaves: list[Tensor]) -> None:
            axes = zip(leaves, self._places[name], strict=False)
            parts = [_pooled(leaf, axis) for leaf, axis in axes if axis not in (None, NO_ROWS)]
            found[name].append(_sampled(name, torch.cat(parts, dim=1)))

        with listening({name: self.module.get_submodule(name) for name in self._places}, keep):
            self.predict(features, available)
        calls = -(-rows // _ROWS_AT_ONCE)
        # A submodule that runs several times in a call has a view for each time.
        return {
            f"{name}.{turn}" if len(parts) > calls else name: np.concatenate(parts[turn :: len(parts) // calls])
            for name, parts in found.items()
            for turn in range(len(parts) // calls)
        }

    @cached_property
    def _places(self) -> dict[str, list[int | None]]:
        """Submodules whose outputs have one entry for each row, with the axes of the rows."""
        names = [name for name, _ in self.module.named_modules() if name]
        axes = self.architecture.row_axes(self.module, names)
        found = {name: own for name, own in axes.items() if not set(own) <= {None, NO_ROWS}}
        kept = np.unique(np.linspace(0, len(found) - 1, min(_PLACES, len(found))).round().astype(int))
        return {name: axes for place, (name, axes) in enumerate(found.items()) if place in kept}


def _pooled(tensor: Tensor, axis: int) -> Tensor:
    """Return a tensor with the rows first, and the mean over all other axes but one, for each of them in turn."""
    x = tensor.movedim(axis, 0).float()
    if x.ndim < 3:
        return x.reshape(len(x), -1)
    others = range(1, x.ndim)
    return torch.cat([x.mean([a for a in others if a != kept]) for kept in others], dim=1)


def _sampled(name: str, units: Tensor) -> Array:
    if units.shape[1] > _UNITS:
        chosen = stream(0, "activations", name).choice(units.shape[1], _UNITS, replace=False)
        units = units[:, np.sort(chosen)]
    return to_array(units)


def architecture_for(settings: ModelSettings, modalities: Mapping[str, Shape], outputs: int) -> Architecture:
    """Return what the parameters describe, for data with these modalities."""
    if unknown := [m for m in settings.branches if m not in modalities]:
        raise UsageError(
            f"the data has no modality {unknown[0]!r}",
            key="model.branches",
            value=unknown[0],
            hint=f"it has {', '.join(modalities)}",
        )
    return Architecture(
        load_factory(settings.backbone),
        dict(modalities),
        outputs,
        settings.options,
        settings.branches,
        settings.backbone,
        inputs=settings.inputs,
        output=settings.output,
    )


def spec_of(architecture: Architecture, training: Mapping[str, Any]) -> dict[str, object]:
    """Return what `model.json` says of a factory, and of the settings of a training."""
    spec = ModuleSpec(
        options=dict(architecture.options),
        branches={m: tuple(names) for m, names in architecture.branches.items()},
        shapes=dict(architecture.modalities),
        source=source_digest(architecture.factory),
        inputs=architecture.inputs,
        output=architecture.output,
        training=dict(training),
    )
    return spec.to_plain()


def from_tensors(record: ModelRecord, tensors: Mapping[str, Array], *, closed: bool = True) -> ModuleBackbone:
    """Build the module that `record` describes around its weights.

    Args:
        record: Of the model.
        tensors: Its weights.
        closed: Whether what a fixed shape is built for and the model does not take (a modality that was deleted, or
            that training never had) is absent whatever is passed in. Without it, the module is what somebody has who
            has the file: it can be fed that too.

    Raises:
        DataError: The factory does not build a module that these weights fit.

    """
    architecture = architecture_of(record)
    warn_of_other_source(architecture, record.spec["source"])
    module = architecture.blank()
    load_state(module, tensors, record.backbone)
    not_taken = closed_inputs(record, architecture) if closed else ()
    return ModuleBackbone(module.requires_grad_(False), architecture, record.task, closed=not_taken)


def open_inputs(record: ModelRecord, tensors: Mapping[str, Array], shapes: Mapping[str, Shape]) -> ModuleBackbone:
    """Build the module around its weights with every input of `shapes` that it can take, whatever its record says.

    That is tried: the factory is called with these inputs too, and the weights fit what it builds, or they do not.
    """
    architecture = architecture_of(record)
    try:
        module = (wider := _with_inputs(architecture, shapes)).blank()
        load_state(module, tensors, record.backbone)
    except MbdError:
        return from_tensors(record, tensors, closed=False)
    return ModuleBackbone(module.requires_grad_(False), wider, record.task)


def attach_modality(
    record: ModelRecord, tensors: Mapping[str, Array], modality: str, shapes: Mapping[str, Shape], _: Array
) -> Attachment | None:
    """Return the module with `modality` attached again; None if its weights fit no module that takes it.

    The modality's own is what a cut with every branch takes, also those that are not named. Of a module that cannot be
    probed nothing is known to be its own, and nothing is fresh. The scaling of inputs is the module's own affair.
    """
    architecture = architecture_of(record)
    wider = _with_inputs(architecture, {m: s for m, s in shapes.items() if m in (modality, *architecture.modalities)})
    try:
        gone = [modality, *closed_inputs(record, wider)]
        parts = probe(closing(wider, *gone), *gone).tensors
    except UsageError:
        parts = {}
    try:
        released, network = to_plain(architecture, tensors), materialise(wider.build())
        return attach(network, released, parts, wider.modalities, ModuleBackbone(network, wider, record.task))
    except (MbdError, ValueError):
        return None


def own_values(
    record: ModelRecord, tensors: Mapping[str, Array], gone: Sequence[str], *, proposed: bool
) -> dict[str, Array]:
    """Return, by weight, the numbers that exist for `gone` alone in a module that takes them.

    Args:
        record: Of the module with the modalities.
        tensors: Weights of that module, or of what a deletion has made of it.
        gone: What they exist for, beside modalities that the module did not take before.
        proposed: Whether branches count that are proposed and not named.

    Returns:
        Nothing if the weights fit no module that takes the modalities, or if it cannot be probed.

    """
    architecture = architecture_of(record)
    gone = [*gone, *closed_inputs(record, architecture)]
    try:
        plain = to_plain(architecture, tensors)
        found = probe(closing(architecture, *gone) if proposed else architecture, *gone)
    except MbdError:
        return {}
    return {name: plain[name][~part.alive] for name, part in found.tensors.items() if not part.alive.all()}


def closed_inputs(record: ModelRecord, architecture: Architecture) -> list[str]:
    """Return the modalities that a fixed shape is built for and the model does not take."""
    return [m for m in architecture.modalities if m not in record.inputs]


def _with_inputs(architecture: Architecture, shapes: Mapping[str, Shape]) -> Architecture:
    """Return the architecture for `shapes` too, in their order."""
    own = architecture.modalities
    return replace(architecture, modalities={m: own.get(m, s) for m, s in {**shapes, **own}.items()})


def warn_of_other_source(architecture: Architecture, source: object) -> None:
    """Warn if the file that defines a factory is not the one that a model was made with."""
    if source_digest(architecture.factory) != source:
        _LOG.warning("the source of %s has changed since this model was made", architecture.name)


def load_state(module: nn.Module, tensors: Mapping[str, Array], name: str) -> None:
    """Put weights into a module.

    Raises:
        DataError: They do not fit; it names the first tensor that is missing, left over or of another shape.

    """
    state = module.state_dict()
    for tensor in [*state, *(other for other in tensors if other not in state)]:
        wanted, found = (tuple(part[tensor].shape) if tensor in part else None for part in (state, tensors))
        if wanted != found:
            raise DataError(
                f"the weights do not fit the module that {name} builds",
                key=tensor,
                value=f"{found or 'missing'} in the weights, {wanted or 'missing'} in the module",
                hint="check model.options, and whether the factory's code has changed since training",
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch doubts arrays that cannot be written to; these are only read
        module.load_state_dict({key: torch.from_numpy(np.asarray(x, order="C")) for key, x in tensors.items()})


def provenance(
    architecture: Architecture, tensors: Mapping[str, Array], modalities: Iterable[str]
) -> dict[str, TensorRecord]:
    """Return what the training of each tensor on `modalities` could see, and for which one alone it exists."""
    modalities = tuple(modalities)
    owners: dict[str, set[str]] = {name: set() for name in tensors}
    for modality in modalities if len(modalities) > 1 else ():
        try:
            found = probe(architecture, modality)
        except UsageError as error:
            _LOG.warning("%s cannot be cut out of this model: %s", modality, error.problem)
            continue
        for name in tensors:
            part = found.tensors.get(plain_name(name))
            if part is not None and part.dead:
                owners[name].add(modality)
    records = {}
    for name, tensor in tensors.items():
        owner = next(iter(owners[name])) if len(owners[name]) == 1 else None
        records[name] = describe(tensor, modalities, belongs_to=owner)
    return records


def plain_name(name: str) -> str:
    """Return the weight that a stored tensor is part of: `fc.weight` of `fc.parametrizations.weight.original0`."""
    match = _PARAMETRISED.match(name)
    return f"{match[1]}{match[2]}" if match else name


def architecture_of(record: ModelRecord) -> Architecture:
    """Return the architecture that a model's record describes."""
    spec = ModuleSpec.model_validate(record.spec)
    factory, outputs = load_factory(record.backbone), max(len(record.classes), 1)
    return Architecture(
        factory,
        spec.shapes,
        outputs,
        spec.options,
        spec.branches,
        record.backbone,
        inputs=spec.inputs,
        output=spec.output,
    )


def to_plain(architecture: Architecture, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return stored weights with every parametrised one as the tensor that it stands for, as probing names them."""
    module = architecture.blank()
    load_state(module, tensors, architecture.name)
    return to_tensor_dict(materialise(module))


def from_plain(architecture: Architecture, plain: Mapping[str, Array]) -> dict[str, Array]:
    """Return what :func:`to_plain` came from: weights as the module stores them.

    Raises:
        UsageError: A parametrisation cannot hold a weight, such as a spectral norm zeros.

    """
    module = architecture.blank().eval()
    state = module.state_dict()
    with torch.no_grad():
        for name, array in plain.items():
            tensor = torch.from_numpy(np.array(array))
            if name in state:
                state[name].copy_(tensor)
                continue
            owner, _, part = name.rpartition(".")
            if not _hold(module.get_submodule(owner), part, tensor):
                raise UsageError(
                    "the parametrisation of a weight cannot hold what is left of it",
                    key=name,
                    value=architecture.name,
                    hint="remove it (torch.nn.utils.parametrize.remove_parametrizations) and import the model again",
                )
    return to_tensor_dict(module)


def _hold(layer: nn.Module, name: str, weight: Tensor) -> bool:
    """Put a weight into a parametrised layer; return whether it is there.

    A weight norm has no inverse for a row of zeros: such a row gets the length 0 and the direction of ones.
    """
    try:
        setattr(layer, name, weight)
    except (RuntimeError, NotImplementedError):  # a parametrisation may have no inverse
        return False
    parametrised: Any = layer.parametrizations[name]  # type: ignore[index]
    if isinstance(parametrised[0], _WeightNorm) and (empty := parametrised.original0 == 0).any():
        setattr(layer, name, torch.where(empty, torch.ones_like(weight), weight))
        parametrised.original0[empty] = 0
    return torch.allclose(getattr(layer, name), weight, atol=1e-6)


def cut_plain(found: Provenance, plain: Mapping[str, Array]) -> dict[str, Array]:
    """Return weights without what exists for a modality alone; counters (integers) follow their layer."""
    left = found.cut(plain)
    for name in [name for name in plain if name not in found.tensors]:
        layer = [part for other, part in found.tensors.items() if _layer(other) == _layer(name)]
        if layer and all(part.kept is None for part in layer):
            del left[name]
        elif layer and all(part.dead for part in layer):
            left[name] = np.zeros_like(plain[name])
    return left


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def zero_dead(architecture: Architecture, tensors: Mapping[str, Array], gone: Sequence[str]) -> dict[str, Array]:
    """Return the weights of a module of fixed shape with zeros at all that exists for `gone` alone."""
    plain = to_plain(architecture, tensors)
    return from_plain(architecture, cut_plain(probe(architecture, *gone), plain))

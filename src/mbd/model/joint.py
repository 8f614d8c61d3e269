"""The backbone `joint`: the paper's networks as a model that is stored, loaded and looked into.

Every tensor is trained on all modalities given, so it `sees` all of them; only a modality's scaling sees nothing but
that modality, and the labels' scaling none. `modality.NAME.…` belongs to NAME. A first layer that reads raw inputs
lists which of its columns read which modality.
"""

import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from mbd.formats.features import Shape, Task
from mbd.formats.model import ColumnRange, JointSpec, ModelRecord, TensorRecord
from mbd.model.attachment import Attachment, attach
from mbd.model.checkpoint import describe, kept_columns
from mbd.model.contract import listening, seeded
from mbd.model.networks import JointNetwork, JointShape
from mbd.model.probing import TensorProbe
from mbd.records import dotted
from mbd.tensors import Array

_SCALING = ("mean", "scale")
_SMALLEST_DEVIATION = 1e-6


class JointBackbone:
    """A trained joint model: numpy in, numpy out."""

    def __init__(self, network: JointNetwork, task: Task) -> None:
        self.network, self.task = network.eval(), task

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        """Return scores (n), or class probabilities (n × classes)."""
        with torch.inference_mode():
            outputs: Tensor = self.network(*self.to_tensors(features, available))
            return to_array(outputs.softmax(dim=1) if self.task == "classification" else outputs[:, 0])

    def reconstruct(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return X̂^m of every modality in the units of the features; empty where generators were ablated."""
        if not self.network.shape.reconstruction:
            return {}
        with torch.inference_mode():
            inputs = self.network.standardise(*self.to_tensors(features, available))
            paths = self.network.modality.items()
            return {m: to_array(self.network.generate(m, inputs) * path.scale + path.mean) for m, path in paths}

    def reconstructions(
        self, features: Mapping[str, Array], available: Mapping[str, Array], modality: str
    ) -> dict[str, Array]:
        """Return X̂^m as generated, and what the recomposition makes of B_m(Z) and P^m."""
        network, path, generated = self.network, self.network.modality[modality], {}
        with torch.inference_mode():
            raw, there = self.to_tensors(features, available)
            if network.shape.reconstruction:
                generated["generator"] = network.generate(modality, network.standardise(raw, there))
            if network.shape.property_pathway:
                translated = path.back_translation(network.embed(raw, there))
                generated["back-translation"] = path.recomposition(translated + path.property)
            return {name: to_array(x * path.scale + path.mean) for name, x in generated.items()}

    def activations(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Run every network on every row, including those that a prediction skips; return the output of each layer."""
        network, recorded = self.network, dict[str, Tensor]()
        layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, nn.Linear)}

        def keep(name: str, outputs: list[Tensor]) -> None:
            recorded[name] = outputs[0].relu_() if name.endswith(".hidden") else outputs[0]

        with torch.inference_mode(), listening(layers, keep):
            raw, there = self.to_tensors(features, available)
            inputs = network.standardise(raw, there)
            generated = {m: network.generate(m, inputs) for m in inputs} if network.shape.reconstruction else {}
            needed = {m: x for m, x in generated.items() if not there[m].all()}
            z = network.fuse(network.complete(inputs, there, needed), there)
            network.answer(z, inputs, there)
            if network.shape.property_pathway:
                for m, path in network.modality.items():
                    specific, invariant = path.decompose(inputs[m])
                    path.recomposition(specific + invariant)
                    path.back_translation(z)
            if not network.shape.fusion:
                recorded["embedding"] = z
            return {name: to_array(recorded[name]) for name in sorted(recorded)}

    def to_tensors(
        self, features: Mapping[str, Array], available: Mapping[str, Array]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return features and availability of the model's modalities as tensors on its device."""
        device = self.network.label_mean.device
        names = self.network.modalities
        raw = {m: torch.from_numpy(np.array(features[m], np.float32)).to(device) for m in names}
        return raw, {m: torch.from_numpy(np.array(available[m], bool)).to(device) for m in names}


def from_tensors(record: ModelRecord, tensors: Mapping[str, Array]) -> JointBackbone:
    """Build the backbone that `record` describes around its weights."""
    network = empty_network(record.modalities, max(len(record.classes), 1), JointSpec.model_validate(record.spec))
    network.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in tensors.items()}, assign=True)
    return JointBackbone(network.requires_grad_(False), record.task)


def attach_modality(
    record: ModelRecord,
    tensors: Mapping[str, Array],
    modality: str,
    shapes: Mapping[str, Shape],
    sample: Array,
) -> Attachment | None:
    """Return the model with `modality` attached again, scaled as in `sample`; None if it cannot take such data."""
    taken = [m for m in shapes if m in (modality, *record.modalities)]
    if any(shapes[m].kind != "vector" for m in taken):
        return None
    dims = {m: record.modalities.get(m, shapes[m].width) for m in taken}
    with seeded(0, "attach"):
        network = JointNetwork(dims, max(len(record.classes), 1), JointSpec.model_validate(record.spec))
    if modality not in record.modalities:
        path = network.modality[modality]
        path.mean.copy_(torch.from_numpy(sample.mean(0)))
        path.scale.copy_(torch.from_numpy(np.maximum(sample.std(0), _SMALLEST_DEVIATION)))
    parts = {name: _own_part(entry, modality) for name, entry in provenance(to_tensor_dict(network), dims).items()}
    inputs = {m: Shape.vector(dim) for m, dim in dims.items()}
    return attach(network, tensors, parts, inputs, JointBackbone(network, record.task))


def _own_part(entry: TensorRecord, modality: str) -> TensorProbe:
    """Return by the record what probing finds in modules of one's own."""
    kept = kept_columns(entry, [modality])
    alive = np.broadcast_to(kept & (entry.belongs_to != modality), entry.shape)
    return TensorProbe(alive, (*map(np.arange, entry.shape[:-1]), np.flatnonzero(kept)))


def empty_network(modalities: Mapping[str, int], outputs: int, shape: JointShape) -> JointNetwork:
    """Return a network without values: no random number is drawn for weights that are set anyway."""
    with torch.device("meta"), warnings.catch_warnings():
        # The generator of a modality that is the only one left may have nothing to read.
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        return JointNetwork(modalities, outputs, shape)


def to_tensor_dict(network: nn.Module) -> dict[str, Array]:
    """Return copies of all weights and scalings by name."""
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in network.state_dict().items()}


def provenance(tensors: Mapping[str, Array], modalities: Mapping[str, int]) -> dict[str, TensorRecord]:
    """Return what the training of each tensor of a joint model on `modalities` could see."""
    records = {}
    for name, tensor in tensors.items():
        owner, part = _owner(name)
        if name.startswith("label_"):
            sees: tuple[str, ...] = ()
        else:
            sees = (owner,) if owner and part in _SCALING else tuple(modalities)
        columns = tuple(_columns(_raw_inputs(owner, part, modalities)))
        records[name] = describe(tensor, sees, belongs_to=owner, columns=columns)
    return records


def _owner(name: str) -> tuple[str | None, str]:
    """Split `modality.NAME.PART` into NAME and PART; a shared tensor has no owner."""
    top, _, rest = name.partition(".")
    if top != "modality":
        return None, name
    owner, _, part = rest.partition(".")
    return dotted(owner), part


def _raw_inputs(owner: str | None, part: str, modalities: Mapping[str, int]) -> dict[str, int]:
    """Return the modalities, in order, whose raw inputs the tensor multiplies."""
    if part in ("fusion.hidden.weight", "linear.weight"):
        return dict(modalities)
    if part in ("generator.hidden.weight", "beside.weight"):
        return {m: d for m, d in modalities.items() if m != owner}
    if owner and part in ("decomposition.hidden.weight", "projection.weight"):
        return {owner: modalities[owner]}
    return {}


def _columns(modalities: Mapping[str, int]) -> Iterator[ColumnRange]:
    start = 0
    for modality, dim in modalities.items():
        yield ColumnRange(start=start, stop=start + dim, reads=modality)
        start += dim


def to_array(tensor: Tensor) -> Array:
    """Return a tensor's values in main memory."""
    array: Array = tensor.detach().float().cpu().numpy()
    return array

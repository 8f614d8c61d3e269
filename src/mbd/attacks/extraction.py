"""Running a backbone for an attack: outputs over all availability masks, and all activations.

Masks are all sets of the retained modalities that the model takes, the empty one only where m* is fed. A row is given
what a mask names as far as the row has it; everything it has, if that would be nothing. Outputs are scores, or
logarithms of probabilities. Activations are those of rows with all they have.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor, nn

from mbd.features.rows import Rows
from mbd.model.joint import JointBackbone, to_array
from mbd.model.lattice import LatticeBackbone, kernel_features
from mbd.model.predictor import LoadedBackbone
from mbd.tensors import Array

_SMALLEST_PROBABILITY = 1e-6
Mask = tuple[str, ...]


@dataclass(frozen=True)
class Extraction:
    """What a model computes for some rows."""

    masks: tuple[Mask, ...]
    """the modalities given, m* (where it was fed) aside; the last mask is everything"""
    outputs: Array
    """score, or logarithm of each class's probability, of each row under each mask (n × masks × outputs)"""
    activations: Mapping[str, Array]
    """by place in the model (n × width each)"""

    @property
    def complete(self) -> Array:
        """The outputs of rows with all they have (n × outputs)."""
        return self.outputs[:, -1]


@dataclass(frozen=True)
class Feeding:
    """Which inputs of a model get what."""

    inputs: Mapping[str, int]
    """every input of the model with its width"""
    retained: Mask
    """inputs that are retained modalities of the data"""
    entries: Mask
    """inputs that get m*; empty if it is not fed"""
    modality: str
    """m*"""

    def masks(self) -> tuple[Mask, ...]:
        """Return the sets of retained modalities that are given."""
        sizes = range(0 if self.entries else 1, len(self.retained) + 1)
        return tuple(mask for size in sizes for mask in combinations(self.retained, size))

    def __call__(self, rows: Rows, mask: Mask) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return features and availability of every input of the model."""
        n = len(rows)
        there = {m: rows.available[m] if m in self.retained else np.zeros(n, bool) for m in self.inputs}
        there |= dict.fromkeys(self.entries, rows.available[self.modality])
        given = {m: bits & (m in mask or m in self.entries) for m, bits in there.items()}
        nothing = ~np.any(list(given.values()), axis=0)
        given = {m: bits | (nothing & there[m]) for m, bits in given.items()}
        sources = {m: rows.features[m] for m in self.retained}
        sources |= {m: _to_width(rows.features[self.modality], self.inputs[m]) for m in self.entries}
        features = {
            m: np.where(given[m][:, None], sources[m], np.float32(0)) if m in sources else np.zeros((n, d), np.float32)
            for m, d in self.inputs.items()
        }
        return features, given


def extract(backbone: LoadedBackbone, feeding: Feeding, rows: Rows) -> Extraction:
    """Return everything that a white-box attack sees for `rows`."""
    masks = feeding.masks()
    outputs = answers(backbone, feeding, rows, masks)
    everything = feeding(rows, feeding.retained)
    if isinstance(backbone, JointBackbone):
        activations = _joint_activations(backbone, *everything)
    elif isinstance(backbone, LatticeBackbone):
        activations = _lattice_activations(backbone, *everything)
    else:
        offered = getattr(backbone, "activations", None)  # a plug-in's backbone may offer them
        activations = offered(*everything) if offered else {}
    return Extraction(masks, outputs, {name: _finite(x) for name, x in activations.items()})


def answers(backbone: LoadedBackbone, feeding: Feeding, rows: Rows, masks: Sequence[Mask]) -> Array:
    """Return the outputs under these masks (n × masks × outputs)."""
    return _finite(np.stack([_logits(backbone, *feeding(rows, mask)) for mask in masks], axis=1))


def reconstruct(backbone: LoadedBackbone, feeding: Feeding, rows: Rows, entry: str) -> dict[str, Array]:
    """Return the backbone's reconstruction of the input `entry` of each row, if that is not given."""
    if not isinstance(backbone, JointBackbone):
        return {}
    network, inputs = backbone.network, feeding(rows, feeding.retained)
    generated = backbone.reconstruct(*inputs)
    found = {"generator": generated[entry]} if generated else {}
    if network.shape.property_pathway:
        path = network.modality[entry]
        with torch.inference_mode():
            translated = path.back_translation(network.embed(*backbone.to_tensors(*inputs)))
            found["back-translation"] = to_array(
                path.recomposition(translated + path.property) * path.scale + path.mean
            )
    return found


def _logits(backbone: LoadedBackbone, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
    answered = np.ones(len(next(iter(features.values()))), bool)
    if isinstance(backbone, LatticeBackbone):
        # A lattice has no output for rows whose modalities are too rare to have a module.
        modules = [np.all([available[m] for m in tag], axis=0) for tag in backbone.modules]
        answered = np.any(modules, axis=0)
    given = {m: x[answered] for m, x in features.items()}
    scores = backbone.predict(given, {m: bits[answered] for m, bits in available.items()})
    if scores.ndim > 1:
        scores = np.log(np.maximum(scores, _SMALLEST_PROBABILITY))
    out = np.zeros((len(answered), scores.shape[1] if scores.ndim > 1 else 1), np.float32)
    out[answered] = scores.reshape(len(scores), -1)
    return out


def _joint_activations(
    backbone: JointBackbone, features: Mapping[str, Array], available: Mapping[str, Array]
) -> dict[str, Array]:
    """Run every network on every row, including those that a prediction skips, and keep the output of each layer."""
    network = backbone.network
    with torch.inference_mode(), _recording(network) as recorded:
        raw, there = backbone.to_tensors(features, available)
        inputs = network.standardise(raw, there)
        generated = {m: network.generate(m, inputs) for m in inputs} if network.shape.reconstruction else {}
        z = network.fuse(network.complete(inputs, there, generated), there)
        network.head(z)
        if network.shape.property_pathway:
            for m, path in network.modality.items():
                specific, invariant = path.decompose(inputs[m])
                path.recomposition(specific + invariant)
                path.back_translation(z)
        if not network.shape.fusion:
            recorded["embedding"] = z
        return {name: to_array(recorded[name]) for name in sorted(recorded)}


@contextmanager
def _recording(network: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Within: what the linear layers of a network return, hidden ones rectified, is kept under their names."""
    recorded: dict[str, Tensor] = {}

    def listen(name: str, layer: nn.Module) -> torch.utils.hooks.RemovableHandle:
        def keep(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> None:
            recorded[name] = torch.relu(output) if name.endswith(".hidden") else output

        return layer.register_forward_hook(keep)

    handles = [listen(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def _lattice_activations(
    backbone: LatticeBackbone, features: Mapping[str, Array], available: Mapping[str, Array]
) -> dict[str, Array]:
    """Return coordinates p^m, kernel features φ and scores f_S of every module; zero for rows that lack one's input."""
    given = [m for m in backbone.modalities if available[m].any()]
    points = {m: backbone.projections[m](features[m]) for m in given}
    found = {f"projection.{m}": np.where(available[m][:, None], points[m], 0) for m in given}
    for tag, module in backbone.modules.items():
        if not set(tag) <= set(given):
            continue
        has_all = np.all([available[m] for m in tag], axis=0)[:, None]
        name = f"module.{'+'.join(tag)}"
        found[f"{name}.scores"] = np.where(has_all, module.scores(points, backbone.projections), 0)
        if "kernel.weights" in module.tensors:
            landmarks = {m: module.tensors[f"landmarks.{m}"] for m in tag}
            own, length = {m: points[m] for m in tag}, float(module.tensors["kernel.length"])
            found[f"{name}.kernel"] = np.where(
                has_all, kernel_features(own, landmarks, backbone.projections, length), 0
            )
    return {name: np.asarray(values, np.float32) for name, values in found.items()}


def _finite(values: Array) -> Array:
    """Return values with 0 for what is no number: a broken model says nothing there."""
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _to_width(matrix: Array, width: int) -> Array:
    """Return a matrix cut to, or filled up with zeros to, `width` columns."""
    out = np.zeros((len(matrix), width), np.float32)
    common = min(width, matrix.shape[1])
    out[:, :common] = matrix[:, :common]
    return out

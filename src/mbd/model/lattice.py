"""The lattice backbone: a module for every non-empty set of modalities S, its tag.

The module of a tag scores rows by that tag's modalities:

    z^m = clip((x^m − mean) / deviation, ±5)            on the grid 2⁻¹⁰
    p^m = z^m V^m                                       V^m: principal directions of m alone (grid 2⁻¹²); on the grid
    R_S = p^S W + b                                     ridge, a strength for each modality
    K_S = φ(p^S) U + c,   φ_j = 8·exp(−Σ_m ‖p^m − l_j^m‖² / (2 ℓ² |S| v_m))     drawn landmarks l_j, v_m = E‖p^m‖²
    f_S = (1 − γ) R_S + γ K_S

A row that has the modalities S is answered by all modules T ⊆ S together, weighted by their out-of-fold errors σ:

    w_T ∝ exp(−κ n (σ_T² / min σ² − 1) / 2)             n: the fewest rows one of them was trained on

so that a modality that only adds noise adds little of it. Classes: the same on probabilities softmax(c_T f_T).
Where too few rows had S in training there is no module for it, and those below answer.

No tensor of a tag has seen a modality outside it, so revoking m is dropping every tensor that has seen m.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mbd.formats.model import ModelRecord
from mbd.params.learning import LatticeSettings
from mbd.tensors import Array

GRID = 1024.0
CLIP = 5.0
_KERNEL_GAIN = 8.0
_NEGLIGIBLE = 1e-3
Tag = tuple[str, ...]


def tags(modalities: Iterable[str]) -> list[Tag]:
    """Return every non-empty set of modalities, smaller ones first, each in alphabetical order."""
    names = sorted(modalities)
    return [tag for size in range(1, len(names) + 1) for tag in combinations(names, size)]


def on_grid(values: Array) -> Array:
    """Round to multiples of 2⁻¹⁰, so that sums of products are exact in float64 whatever their order."""
    rounded = np.multiply(values, GRID)
    np.rint(rounded, out=rounded)
    rounded /= GRID
    return rounded


@dataclass(frozen=True)
class Projection:
    """From the raw input of one modality to its coordinates p^m; made from that modality alone."""

    mean: Array
    deviation: Array
    directions: Array
    variances: Array

    def standardise(self, matrix: Array) -> Array:
        """Return z^m; a column that never varied is zero."""
        z = np.subtract(matrix, self.mean, dtype=np.float64)
        z /= self.deviation
        return on_grid(np.clip(z, -CLIP, CLIP, out=z))

    def __call__(self, matrix: Array) -> Array:
        """Return p^m."""
        return on_grid(self.standardise(matrix) @ self.directions.astype(np.float64))


def kernel_features(
    points: Mapping[str, Array], landmarks: Mapping[str, Array], projections: Mapping[str, Projection], length: float
) -> Array:
    """Return φ for rows and landmarks given by their coordinates in each modality of one tag."""
    return similarities(mean_distances(points, landmarks, projections), length)


def mean_distances(
    points: Mapping[str, Array], landmarks: Mapping[str, Array], projections: Mapping[str, Projection]
) -> Array:
    """Return ‖p^m − l_j^m‖² / v_m, averaged over the modalities of one tag, for each row and landmark."""
    total: Array = np.zeros(())
    for name, point in points.items():
        landmark = landmarks[name].astype(np.float64)
        squared = point @ (-2 * landmark.T)
        squared += np.square(point).sum(1)[:, None]
        squared += np.square(landmark).sum(1)
        squared /= max(float(projections[name].variances.sum()), 1e-12) * len(points)
        total = np.add(total, squared, out=squared)
    return total


def similarities(distances: Array, length: float) -> Array:
    """Return φ from mean distances."""
    phi = distances / (-2 * length**2)
    np.exp(phi, out=phi)
    phi *= _KERNEL_GAIN
    return on_grid(phi)


@dataclass(frozen=True)
class Module:
    """The trained module of one tag; `kernel` weights are missing where the kernel part was left out."""

    tag: Tag
    tensors: Mapping[str, Array]

    @property
    def error(self) -> float:
        """σ_S, the out-of-fold error."""
        return float(self.tensors["sigma"])

    @property
    def rows(self) -> int:
        """How many rows it was trained on."""
        return int(self.tensors["rows"])

    def scores(self, points: Mapping[str, Array], projections: Mapping[str, Projection]) -> Array:
        """Return f_S (n × targets)."""
        own = {name: points[name] for name in self.tag}
        ridge: Array = np.hstack(list(own.values())) @ self.tensors["ridge.weights"] + self.tensors["ridge.offset"]
        if "kernel.weights" not in self.tensors:
            return ridge
        landmarks = {name: self.tensors[f"landmarks.{name}"] for name in self.tag}
        features = kernel_features(own, landmarks, projections, float(self.tensors["kernel.length"]))
        kernel = features @ self.tensors["kernel.weights"] + self.tensors["kernel.offset"]
        gamma = self.tensors["gamma"]
        blended: Array = (1 - gamma) * ridge + gamma * kernel
        return blended


@dataclass(frozen=True)
class LatticeBackbone:
    """All modules of a model."""

    modalities: tuple[str, ...]
    projections: Mapping[str, Projection]
    modules: Mapping[Tag, Module]
    classes: int
    trust: float

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        """Return scores (n), or class probabilities (n × classes)."""
        n = len(next(iter(features.values())))
        out = np.zeros((n, max(self.classes, 1)))
        names = sorted(self.modalities)
        pattern = sum((np.asarray(available[m], np.int64) << place) for place, m in enumerate(names))
        for code in np.unique(pattern):
            rows = np.flatnonzero(pattern == code)
            weights = self.weights(tuple(m for place, m in enumerate(names) if code >> place & 1))
            used = {m for module in weights for m in module}
            points = {m: self.projections[m](features[m][rows]) for m in used}
            out[rows] = sum(weight * self._answer(self.modules[tag], points) for tag, weight in weights.items())
        return out.astype(np.float32) if self.classes else out[:, 0].astype(np.float32)

    def weights(self, present: Tag) -> dict[Tag, float]:
        """Return w_T for the modules that answer for rows with the modalities `present`."""
        below = {tag: module for tag, module in self.modules.items() if set(tag) <= set(present)}
        errors = np.array([module.error**2 for module in below.values()])
        rows = min(module.rows for module in below.values())
        raw = np.exp(-self.trust * rows * (errors / errors.min() - 1) / 2)
        raw[raw < _NEGLIGIBLE * raw.sum()] = 0
        return {tag: float(w) for tag, w in zip(below, raw / raw.sum(), strict=True) if w > 0}

    def _answer(self, module: Module, points: Mapping[str, Array]) -> Array:
        scores = module.scores(points, self.projections)
        return softmax(float(module.tensors["sharpness"]) * scores) if self.classes else scores


def softmax(scores: Array) -> Array:
    """Return probabilities, row by row."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    total: Array = shifted / shifted.sum(1, keepdims=True)
    return total


def tensor_name(tag: Tag, name: str) -> str:
    """Return the name in the checkpoint of a module's tensor."""
    return f"module.{'+'.join(tag)}.{name}"


def projection_name(modality: str, name: str) -> str:
    """Return the name in the checkpoint of a projection's tensor."""
    return f"projection.{modality}.{name}"


def read_projection(tensors: Mapping[str, Array], modality: str) -> Projection:
    """Return the projection of one modality from the tensors of a checkpoint."""
    return Projection(*(tensors[projection_name(modality, part)] for part in Projection.__dataclass_fields__))


def from_tensors(record: ModelRecord, tensors: Mapping[str, Array]) -> LatticeBackbone:
    """Return the backbone that the tensors of a checkpoint describe."""
    projections = {m: read_projection(tensors, m) for m in record.modalities}
    modules = {}
    for tag in tags(record.modalities):
        prefix = tensor_name(tag, "")
        own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        if own:
            modules[tag] = Module(tag, own)
    trust = LatticeSettings.model_validate(record.spec).trust
    return LatticeBackbone(tuple(record.modalities), projections, modules, len(record.classes), trust)

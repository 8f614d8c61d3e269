"""The lattice backbone: a module for every non-empty set of modalities S, its tag.

The module of a tag scores rows by that tag's modalities:

    z^m = clip((x^m − mean) / deviation, ±5)            on the grid 2⁻¹⁰
    p^m = z^m V^m                                       V^m: principal directions of m alone (grid 2⁻¹²); on the grid
    R_S = p^S W + b                                     ridge, a strength for each modality
    K_S = φ(p^S) U + c,   φ_j = 8·exp(−Σ_m ‖p^m − l_j^m‖² / (2 ℓ² |S| v_m))     drawn landmarks l_j, v_m = E‖p^m‖²
    f_S = (1 − γ) R_S + γ K_S

A row that has the modalities S is answered by all modules T ⊆ S together, weighted by their out-of-fold errors σ:

    w_T ∝ exp(−κ n (σ_T² / min σ² − 1) / 2)             n: the fewest rows one of them was trained on

so that a modality that only adds noise adds little of it. Classes: f_S and a logistic member on p^S are added up, the
prior π of the classes discounted, and the probabilities of modules are blended:

    L_S = p^S W' + b',   z_S = s_f f_S + s_L L_S − t log π,   softmax z_S

Where too few rows had S in training there is no module for it, and those below answer.

No tensor of a tag has seen a modality outside it, so revoking m is dropping every tensor that has seen m.

With `model.lattice.member` the modules are networks instead (:mod:`mbd.model.deep_lattice`), blended in the same way.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate, combinations
from math import comb
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from mbd.errors import UsageError
from mbd.formats.model import LatticeSpec, ModelRecord
from mbd.names import dotless, dotted
from mbd.params.learning import LatticeSettings
from mbd.tensors import Array

_logger = logging.getLogger(__name__)
GRID = 1024.0
CLIP = 5.0
_KERNEL_GAIN = 8.0
_NEGLIGIBLE = 1e-3
_MODULE = "module"
Tag = tuple[str, ...]


def chosen_tags(settings: LatticeSettings, modalities: Iterable[str]) -> list[Tag]:
    """Return the tags that get a module: each modality alone, and the larger sets that the settings name.

    Raises:
        UsageError: There would be more than can be trained, or a set names a modality that is not there.

    """
    names = sorted(modalities)
    _refuse_too_many(settings, len(names))
    if isinstance(settings.tags, tuple):
        larger = {_parsed(text, names) for text in settings.tags}
        return sorted({*larger, *tags(names, 1)}, key=lambda tag: (len(tag), tag))
    if settings.tags == "leave-one-out":
        sizes = {1, len(names) - 1, len(names)} - {0}
        return [tag for size in sorted(sizes) for tag in combinations(names, size)]
    return tags(names, settings.tags if isinstance(settings.tags, int) else len(names))


def tags(modalities: Iterable[str], largest: int | None = None) -> list[Tag]:
    """Return every non-empty set of at most `largest` modalities, smaller ones first, each in alphabetical order."""
    names = sorted(modalities)
    sizes = range(1, min(largest or len(names), len(names)) + 1)
    return [tag for size in sizes for tag in combinations(names, size)]


MOST = {"closed form": 1023, "networks": 127}
"""modules that are trained at most"""


def _refuse_too_many(settings: LatticeSettings, modalities: int) -> None:
    if not isinstance(settings.tags, int) and settings.tags != "all":
        return
    largest = min(settings.tags, modalities) if isinstance(settings.tags, int) else modalities
    counts = list(accumulate(comb(modalities, size) for size in range(1, largest + 1)))
    count, most = counts[-1], MOST["networks" if settings.member else "closed form"]
    if count <= most:
        if count > most // 4:
            _logger.warning("the lattice of %d modalities has %d modules; see model.lattice.tags", modalities, count)
        return
    fitting = [size for size, total in enumerate(counts, 1) if total <= most]
    smaller = f"model.lattice.tags={fitting[-1]} (sets of at most {fitting[-1]}), " if fitting else ""
    raise UsageError(
        f"a lattice of {modalities} modalities would have {count:,} modules"
        + (f", each trained {settings.folds + 1} times" if settings.member else "")
        + f"; at most {most:,} are trained",
        key="model.lattice.tags",
        value=settings.tags,
        hint=f"set {smaller}model.lattice.tags=leave-one-out, or list the sets that matter: [a+b, a+c]",
    )


def _parsed(text: str, names: list[str]) -> Tag:
    tag = tuple(sorted({part.strip() for part in text.split("+")}))
    if unknown := [m for m in tag if m not in names]:
        raise UsageError(
            f"the data has no modality {unknown[0]!r}",
            key="model.lattice.tags",
            value=text,
            hint=f"it has {', '.join(names)}",
        )
    return tag


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
        landmarks = {name: self.tensors[landmarks_name(name)] for name in self.tag}
        features = kernel_features(own, landmarks, projections, float(self.tensors["kernel.length"]))
        kernel = features @ self.tensors["kernel.weights"] + self.tensors["kernel.offset"]
        gamma = self.tensors["gamma"]
        blended: Array = (1 - gamma) * ridge + gamma * kernel
        return blended

    def logits(self, scores: Array, points: Mapping[str, Array]) -> Array:
        """Return z_S from f_S (n × classes)."""
        logistic = np.hstack([points[m] for m in self.tag]) @ self.tensors["logistic.weights"]
        of_scores, of_logistic = self.tensors["calibration.scales"]
        found: Array = of_scores * scores + of_logistic * (logistic + self.tensors["logistic.offset"])
        return found + self.tensors["calibration.shift"]


class AnyModule(Protocol):
    """What the blend needs to know of a module."""

    @property
    def error(self) -> float:
        """σ, the out-of-fold error."""

    @property
    def rows(self) -> int:
        """How many rows it was trained on."""


M = TypeVar("M", bound=AnyModule)
T = TypeVar("T")


@dataclass(frozen=True)
class Blend(ABC, Generic[M]):
    """All modules of a model; for each row, those that it has the modalities of answer together."""

    modalities: tuple[str, ...]
    modules: Mapping[Tag, M]
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
            inputs = self.inputs({m for module in weights for m in module}, features, rows)
            out[rows] = sum(weight * self.answer(self.modules[tag], inputs) for tag, weight in weights.items())
        return out.astype(np.float32) if self.classes else out[:, 0].astype(np.float32)

    def answered(self, available: Mapping[str, Array]) -> Array:
        """Return which rows get a prediction: some sets of modalities are too rare to have a module."""
        answered: Array = np.any([np.all([available[m] for m in tag], axis=0) for tag in self.modules], axis=0)
        return answered

    def weights(self, present: Tag) -> dict[Tag, float]:
        """Return w_T for the modules that answer for rows with the modalities `present`."""
        below = {tag: module for tag, module in self.modules.items() if set(tag) <= set(present)}
        errors = np.array([module.error**2 for module in below.values()])
        rows = min(module.rows for module in below.values())
        raw = np.exp(-self.trust * rows * (errors / errors.min() - 1) / 2)
        raw[raw < _NEGLIGIBLE * raw.sum()] = 0
        return {tag: float(w) for tag, w in zip(below, raw / raw.sum(), strict=True) if w > 0}

    @abstractmethod
    def inputs(self, used: set[str], features: Mapping[str, Array], rows: Array) -> Mapping[str, Array]:
        """Return what modules take of the modalities `used`, for some rows."""

    @abstractmethod
    def answer(self, module: M, inputs: Mapping[str, Array]) -> Array:
        """Return scores or probabilities of one module (n × outputs)."""


@dataclass(frozen=True)
class LatticeBackbone(Blend[Module]):
    """Modules in closed form."""

    projections: Mapping[str, Projection]

    def inputs(self, used: set[str], features: Mapping[str, Array], rows: Array) -> Mapping[str, Array]:
        """Return p^m."""
        return {m: self.projections[m](features[m][rows]) for m in used}

    def answer(self, module: Module, inputs: Mapping[str, Array]) -> Array:
        """Return f_S, or its probabilities."""
        scores = module.scores(inputs, self.projections)
        return softmax(module.logits(scores, inputs)) if self.classes else scores

    def activations(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return coordinates p^m, kernel features φ and scores f_S of all modules; zero in rows that lack an input."""
        given = [m for m in self.modalities if available[m].any()]
        points = {m: self.projections[m](features[m]) for m in given}
        found = {f"projection.{m}": np.where(available[m][:, None], points[m], 0) for m in given}
        for tag, module in self.modules.items():
            if not set(tag) <= set(given):
                continue
            has_all = np.all([available[m] for m in tag], axis=0)[:, None]
            name = f"module.{'+'.join(tag)}"
            found[f"{name}.scores"] = np.where(has_all, module.scores(points, self.projections), 0)
            if "kernel.weights" in module.tensors:
                landmarks = {m: module.tensors[landmarks_name(m)] for m in tag}
                own, length = {m: points[m] for m in tag}, float(module.tensors["kernel.length"])
                found[f"{name}.kernel"] = np.where(
                    has_all, kernel_features(own, landmarks, self.projections, length), 0
                )
        return {name: np.asarray(values, np.float32) for name, values in found.items()}


def softmax(scores: Array) -> Array:
    """Return probabilities, row by row."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    total: Array = shifted / shifted.sum(1, keepdims=True)
    return total


def tensor_name(tag: Tag, name: str) -> str:
    """Return the name in the checkpoint of a module's tensor."""
    return f"{_MODULE}.{'+'.join(map(dotless, tag))}.{name}"


def projection_name(modality: str, name: str) -> str:
    """Return the name in the checkpoint of a projection's tensor."""
    return f"projection.{dotless(modality)}.{name}"


def landmarks_name(modality: str) -> str:
    """Return the name, within a module, of its landmarks in one modality."""
    return f"landmarks.{dotless(modality)}"


def read_projection(tensors: Mapping[str, Array], modality: str) -> Projection:
    """Return the projection of one modality from the tensors of a checkpoint."""
    return Projection(*(tensors[projection_name(modality, part)] for part in Projection.__dataclass_fields__))


def from_tensors(record: ModelRecord, tensors: Mapping[str, Array]) -> Blend[Any]:
    """Return the backbone that the tensors of a checkpoint describe."""
    spec = LatticeSpec.model_validate(record.spec)
    modules = module_tensors(record.modalities, tensors)
    if spec.member:
        from mbd.model.deep_lattice import deep_lattice  # noqa: PLC0415 -- imports torch, which a closed form needs not

        return deep_lattice(record, spec, modules)
    projections = {m: read_projection(tensors, m) for m in record.modalities}
    found = {tag: Module(tag, own) for tag, own in modules.items()}
    return LatticeBackbone(tuple(record.modalities), found, len(record.classes), spec.trust, projections)


def module_tensors(modalities: Collection[str], tensors: Mapping[str, T]) -> dict[Tag, dict[str, T]]:
    """Return the tensors of each module, by their names in it, smaller tags first."""
    found: dict[Tag, dict[str, T]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        module, _, own = rest.partition(".")
        tag = tuple(dotted(part) for part in module.split("+"))
        if kind == _MODULE and set(tag) <= set(modalities) and list(tag) == sorted(set(tag)):
            found.setdefault(tag, {})[own] = tensor
    return {tag: found[tag] for tag in sorted(found, key=lambda tag: (len(tag), tag))}

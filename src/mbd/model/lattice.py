"""The lattice backbone: a module for every non-empty set of modalities S, its tag.

The module of a tag scores rows by that tag's modalities:

    z^m = clip((x^m − mean) / deviation, ±5)            on the grid 2⁻¹⁰
    p^m = z^m V^m                                       V^m: principal directions of m alone (grid 2⁻¹²); on the grid
    R_S = p^S W + b                                     ridge, a strength for each modality
    K_S = φ(p^S) U + c,   φ_j = 8·exp(−Σ_m ‖p^m − l_j^m‖² / (2 ℓ² |S| v_m))     drawn landmarks l_j, v_m = E‖p^m‖²,
                                                        in the leading directions of each modality
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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, takewhile
from math import comb
from typing import Any, Generic, TypeVar

import numpy as np

from mbd.errors import UsageError
from mbd.formats.model import LatticeSpec, ModelRecord, Tag, landmarks_name, module_tensors, projection_name
from mbd.model.coordinates import Projection, mean_distances, similarities, softmax
from mbd.params.learning import LatticeSettings
from mbd.tensors import Array


def answer_by_set(
    answer: Callable[[Tag, Mapping[str, Array]], Array],
    features: Mapping[str, Array],
    available: Mapping[str, Array],
    outputs: int,
) -> Array:
    """Return n × outputs numbers: `answer(present, features)` of the rows of each set that occurs."""
    there = np.stack([np.asarray(bits, bool) for bits in available.values()], axis=1)
    if len(there) and (there == there[0]).all():
        return answer(_present(available, there[0]), features).astype(np.float32, copy=False)
    answers = np.empty((len(there), outputs), np.float32)
    for bits in np.unique(there, axis=0):
        rows = np.flatnonzero((there == bits).all(axis=1))
        answers[rows] = answer(_present(available, bits), {name: x[rows] for name, x in features.items()})
    return answers


def _present(modalities: Mapping[str, Array], bits: Array) -> Tag:
    return tuple(m for m, bit in zip(modalities, bits, strict=True) if bit)


_LOG = logging.getLogger(__name__)
_NEGLIGIBLE = 1e-3
LatticeShape = LatticeSettings | LatticeSpec
"""a lattice that is to be trained, or that was"""


def chosen_tags(settings: LatticeShape, modalities: Iterable[str]) -> list[Tag]:
    """Return the tags that get a module: each modality alone, and the larger sets that the settings name.

    Raises:
        UsageError: There would be more than can be trained, or a set names a modality that is not there.

    """
    names = sorted(modalities)
    if isinstance(settings.tags, tuple):
        listed = {*(_parse_tag(text, names) for text in settings.tags), *tags(names, 1)}
        _refuse_too_many(settings, len(names), len(listed))
        return sorted(listed, key=lambda tag: (len(tag), tag))
    sizes = set(range(1, min(settings.tags, len(names)) + 1 if isinstance(settings.tags, int) else len(names) + 1))
    if settings.tags == "leave-one-out":
        sizes &= {1, len(names) - 1, len(names)}
    _refuse_too_many(settings, len(names), sum(comb(len(names), size) for size in sizes))
    return [tag for size in sorted(sizes) for tag in combinations(names, size)]


def tags(modalities: Iterable[str], largest: int | None = None) -> list[Tag]:
    """Return every non-empty set of at most `largest` modalities, smaller ones first, each in alphabetical order."""
    names = sorted(modalities)
    sizes = range(1, min(largest or len(names), len(names)) + 1)
    return [tag for size in sizes for tag in combinations(names, size)]


MOST = {"closed form": 1023, "networks": 127}
"""modules that are trained at most"""


def _refuse_too_many(settings: LatticeShape, modalities: int, count: int) -> None:
    most = MOST["networks" if settings.member else "closed form"]
    if count <= most:
        if count > most // 4:
            _LOG.warning("the lattice of %d modalities has %d modules; see model.lattice.tags", modalities, count)
        return
    raise UsageError(
        f"a lattice of {modalities} modalities would have {count:,} modules"
        + (f", each trained {settings.folds + 1} times" if settings.member else "")
        + f"; at most {most:,} are trained",
        key="model.lattice.tags",
        value=f"{len(settings.tags)} sets" if isinstance(settings.tags, tuple) else settings.tags,
        hint=_smaller(modalities, most),
    )


def _smaller(modalities: int, most: int) -> str:
    """Return how to get a lattice of at most `most` modules."""
    counts = accumulate(comb(modalities, size) for size in range(1, modalities + 1))
    fitting = len(list(takewhile(lambda total: total <= most, counts)))
    if not fitting:
        return f"each modality alone is a module: leave {modalities - most} or more modalities out"
    sets = [f"{fitting} (sets of at most {fitting})"]
    if 2 * modalities + 1 <= most:
        sets.append("leave-one-out")
    return f"set model.lattice.tags={', or '.join(sets)}, or list the sets that matter: [a+b, a+c]"


def _parse_tag(text: str, names: list[str]) -> Tag:
    tag = tuple(sorted({part.strip() for part in text.split("+")}))
    if unknown := [m for m in tag if m not in names]:
        raise UsageError(
            f"the data has no modality {unknown[0]!r}",
            key="model.lattice.tags",
            value=text,
            hint=f"it has {', '.join(names)}",
        )
    return tag


@dataclass(frozen=True)
class AnyModule:
    """The trained module of one tag."""

    tensors: Mapping[str, Array]

    @property
    def error(self) -> float:
        """σ_S, the out-of-fold error."""
        return float(self.tensors["sigma"])

    @property
    def rows(self) -> int:
        """How many rows it was trained on."""
        return int(self.tensors["rows"])


M = TypeVar("M", bound=AnyModule)


@dataclass(frozen=True)
class Module(AnyModule):
    """One in closed form; `kernel` weights are missing where the kernel part was left out."""

    tag: Tag
    widths: Mapping[str, int]
    """coordinates of each modality"""

    @cached_property
    def linear(self) -> dict[str, Array]:
        """Weights of p^m in f_S (of classes: in z_S), for each modality of the tag."""
        weights = self._of_scores * (1 - self._gamma) * self.tensors["ridge.weights"]
        if "logistic.weights" in self.tensors:
            weights = weights + self.tensors["calibration.scales"][1] * self.tensors["logistic.weights"]
        ends = np.cumsum([self.widths[m] for m in self.tag])
        return dict(zip(self.tag, np.split(weights, ends[:-1]), strict=True))

    @cached_property
    def offset(self) -> Array:
        """What is added."""
        offset = (1 - self._gamma) * self.tensors["ridge.offset"]
        if self.landmarks:
            offset = offset + self._gamma * self.tensors["kernel.offset"]
        if "logistic.weights" not in self.tensors:
            return np.asarray(offset)
        logistic = self.tensors["calibration.scales"][1] * self.tensors["logistic.offset"]
        shifted: Array = self._of_scores * offset + logistic + self.tensors["calibration.shift"]
        return shifted

    @cached_property
    def kernel(self) -> Array:
        """Weights of φ."""
        weights: Array = self._of_scores * self._gamma * self.tensors["kernel.weights"]
        return weights

    @cached_property
    def landmarks(self) -> dict[str, Array]:
        """Landmarks of the kernel, by modality; empty without a kernel."""
        if "kernel.weights" not in self.tensors:
            return {}
        return {m: self.tensors[landmarks_name(m)] for m in self.tag}

    @property
    def length(self) -> float:
        """ℓ of the kernel."""
        return float(self.tensors["kernel.length"])

    @property
    def _gamma(self) -> float:
        return float(self.tensors["gamma"]) if self.landmarks else 0.0

    @property
    def _of_scores(self) -> float:
        return float(self.tensors["calibration.scales"][0]) if "logistic.weights" in self.tensors else 1.0

    def scores(self, points: Mapping[str, Array], phi: Array | None) -> Array:
        """Return f_S, or z_S of classes (n × targets), from coordinates and, with a kernel, from φ."""
        linear: Array = sum((points[m] @ self.linear[m] for m in self.tag), self.offset)
        return linear if phi is None else linear + phi @ self.kernel


@dataclass(frozen=True)
class Blend(ABC, Generic[M]):
    """All modules of a model; for each row, those that it has the modalities of answer together."""

    modalities: tuple[str, ...]
    modules: Mapping[Tag, M]
    classes: int
    trust: float

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        """Return scores (n), or class probabilities (n × classes)."""
        there = {m: available[m] for m in sorted(self.modalities)}
        out = answer_by_set(self.answer, features, there, max(self.classes, 1))
        return out if self.classes else out[:, 0]

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
    def answer(self, present: Tag, features: Mapping[str, Array]) -> Array:
        """Return scores or probabilities (n × outputs) of rows that have the modalities `present`."""


@dataclass(frozen=True)
class LatticeBackbone(Blend[Module]):
    """Modules in closed form."""

    projections: Mapping[str, Projection]

    def answer(self, present: Tag, features: Mapping[str, Array]) -> Array:
        """Return what all modules answer together."""
        weights = self.weights(present)
        points = {m: self.projections[m](features[m]) for m in present if any(m in tag for tag in weights)}
        total: Array = np.zeros(())
        for tag, weight in weights.items():
            scores = self.modules[tag].scores(points, self._kernel(tag, points))
            total = total + weight * (softmax(scores) if self.classes else scores)
        return total

    def _kernel(self, tag: Tag, points: Mapping[str, Array]) -> Array | None:
        """Return φ of a module; None if it has no kernel."""
        module = self.modules[tag]
        if not module.landmarks:
            return None
        distances = mean_distances({m: points[m] for m in tag}, module.landmarks, self.projections)
        return similarities(distances, module.length)

    def activations(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> dict[str, Array]:
        """Return coordinates p^m, kernel features φ and scores f_S of all modules; zero in rows that lack an input."""
        given = [m for m in self.modalities if available[m].any()]
        points = {m: self.projections[m](features[m]) for m in given}
        activations = {f"projection.{m}": np.where(available[m][:, None], points[m], 0) for m in given}
        for tag, module in self.modules.items():
            if not set(tag) <= set(given):
                continue
            has_all = np.all([available[m] for m in tag], axis=0)[:, None]
            name = f"module.{'+'.join(tag)}"
            phi = self._kernel(tag, points)
            activations[f"{name}.scores"] = np.where(has_all, module.scores(points, phi), 0)
            if phi is not None:
                activations[f"{name}.kernel"] = np.where(has_all, phi, 0)
        return {name: np.asarray(values, np.float32) for name, values in activations.items()}


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
    widths = {m: len(projection.variances) for m, projection in projections.items()}
    built = {tag: Module(own, tag, widths) for tag, own in modules.items()}
    return LatticeBackbone(tuple(record.modalities), built, len(record.classes), spec.trust, projections)

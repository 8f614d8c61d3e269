"""Prediction of a lattice for one set of modalities, folded into few products.

For the modules T that answer together, with weights w_T, everything before the kernel is linear in z^m, the
standardised and clipped input. So is the exponent of the kernel in p and ‖p^m‖². For all modules at once, in float32:

    [p^m | linear^m] = z^m [V^m | V^m W^m]              p^m: the leading directions, in which landmarks lie
    φ = exp([p | ‖p^1‖² … ] B + c)                      a column for each landmark of each module
    scores = Σ_m linear^m + φ U + offset                regression: w_T is in W, U and offset
    probabilities = Σ_T w_T softmax(scores_T)           classes: columns for each module

Coordinates are not rounded to the grid here, as sums need not be exact: a prediction differs from that of the modules
one by one by at most some 10⁻³.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mbd.model.coordinates import CLIP, KERNEL_GAIN, Projection, softmax
from mbd.tensors import Array

if TYPE_CHECKING:
    from mbd.model.lattice import Module

_BLOCK = 2**18
"""numbers that are worked on at once: as many as a cache holds"""


@dataclass(frozen=True)
class _Input:
    """One modality: its scaling, its products, and where its coordinates are among those of all."""

    mean: Array
    inverse_deviation: Array
    products: Array
    place: slice


@dataclass(frozen=True)
class Folded:
    """What answers rows that have one set of modalities."""

    inputs: Mapping[str, _Input]
    exponents: Array
    """B and c"""
    kernel: Array
    """U"""
    offset: Array
    weights: Array
    """w_T, for classes"""

    def predict(self, features: Mapping[str, Array]) -> Array:
        """Return scores (n × 1) or probabilities (n × classes)."""
        n = len(next(iter(features.values())))
        block = max(_BLOCK // sum(len(own.mean) for own in self.inputs.values()), 1)
        parts = ({m: features[m][at : at + block] for m in self.inputs} for at in range(0, n, block))
        return np.concatenate([self._block(part) for part in parts])

    def _block(self, features: Mapping[str, Array]) -> Array:
        n = len(next(iter(features.values())))
        scores = np.broadcast_to(self.offset, (n, len(self.offset))).copy()
        coordinates = np.ones((n, len(self.exponents)), np.float32)
        squares = len(self.exponents) - 1 - len(self.inputs)
        for place, (m, own) in enumerate(self.inputs.items()):
            found = self._standardised(features[m], own) @ own.products
            width = own.place.stop - own.place.start
            points = found[:, :width]
            scores += found[:, width:]
            coordinates[:, own.place] = points
            np.einsum("ij,ij->i", points, points, out=coordinates[:, squares + place])
        if self.kernel.size:
            similar = coordinates @ self.exponents
            np.exp(similar, out=similar)
            scores += similar @ self.kernel
        if not len(self.weights):
            return scores
        each = softmax(scores.reshape(n * len(self.weights), -1)).reshape(n, len(self.weights), -1)
        blended: Array = np.einsum("t,ntc->nc", self.weights, each)
        return blended

    @staticmethod
    def _standardised(matrix: Array, own: _Input) -> Array:
        z = np.empty(matrix.shape, np.float32)
        np.subtract(matrix, own.mean.astype(matrix.dtype, copy=False), out=z, casting="same_kind")
        z *= own.inverse_deviation
        return np.clip(z, -CLIP, CLIP, out=z)


def fold(
    modules: Sequence["Module"], weights: Sequence[float], projections: Mapping[str, Projection], classes: int
) -> Folded:
    """Return what predicts as `modules` do, blended by `weights`."""
    names = sorted({m for module in modules for m in module.tag})
    drawn = {m: landmarks.shape[1] for module in modules for m, landmarks in module.landmarks.items()}
    ends = np.cumsum([0, *(drawn.get(m, 0) for m in names)]).tolist()
    places = {m: slice(start, stop) for m, start, stop in zip(names, ends, ends[1:], strict=False)}
    outputs = classes * len(modules) if classes else 1
    linear = {m: np.zeros((len(projections[m].variances), outputs)) for m in names}
    offset = np.zeros(outputs)
    exponents, kernel = [np.zeros((ends[-1] + len(names) + 1, 0))], [np.zeros((0, outputs))]
    for number, (module, weight) in enumerate(zip(modules, weights, strict=True)):
        columns = slice(number * classes, (number + 1) * classes) if classes else slice(None)
        factor = 1.0 if classes else weight
        for m, own in module.linear.items():
            linear[m][:, columns] += factor * own
        offset[columns] += factor * module.offset
        if module.landmarks:
            exponents.append(_exponents(module, projections, places))
            kernel.append(np.zeros((len(module.kernel), outputs)))
            kernel[-1][:, columns] = factor * KERNEL_GAIN * module.kernel
    return Folded(
        {m: _input(projections[m], linear[m], places[m]) for m in names},
        np.hstack(exponents).astype(np.float32),
        np.vstack(kernel).astype(np.float32),
        offset.astype(np.float32),
        np.array(weights if classes else (), np.float32),
    )


def _input(projection: Projection, linear: Array, place: slice) -> _Input:
    directions = projection.directions.astype(np.float64)
    products = np.hstack([directions[:, : place.stop - place.start], directions @ linear])
    return _Input(projection.mean, (1 / projection.deviation).astype(np.float32), products.astype(np.float32), place)


def _exponents(module: "Module", projections: Mapping[str, Projection], places: Mapping[str, slice]) -> Array:
    """Return the columns of B and c for the landmarks of one module."""
    end = max(place.stop for place in places.values())
    found = np.zeros((end + len(places) + 1, len(module.kernel)))
    for number, (m, place) in enumerate(places.items()):
        if m in module.landmarks:
            landmarks = module.landmarks[m].astype(np.float64)
            factor = 1 / (2 * module.length**2 * len(module.tag) * projections[m].variance(landmarks.shape[1]))
            found[place] = 2 * factor * landmarks.T
            found[end + number] = -factor
            found[-1] -= factor * np.square(landmarks).sum(1)
    return found

"""Coordinates of a lattice: from the raw input of one modality to its principal directions, and distances in them.

Values are rounded to a grid, so that sums of products are exact in float64 whatever their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mbd.tensors import Array

GRID = 1024.0
CLIP = 5.0
KERNEL_GAIN = 8.0


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

    def variance(self, leading: int) -> float:
        """Return v_m, the mean square length of the leading coordinates."""
        return max(float(self.variances[:leading].sum()), 1e-12)

    def __call__(self, matrix: Array) -> Array:
        """Return p^m."""
        return on_grid(self.standardise(matrix) @ self.directions.astype(np.float64))


def mean_distances(
    points: Mapping[str, Array], landmarks: Mapping[str, Array], projections: Mapping[str, Projection]
) -> Array:
    """Return ‖p^m − l_j^m‖² / v_m, averaged over the modalities of one tag, for each row and landmark."""
    total: Array = np.zeros(())
    for name, point in points.items():
        landmark = landmarks[name].astype(np.float64)
        leading = point[:, : landmark.shape[1]]
        squared = leading @ (-2 * landmark.T)
        squared += np.square(leading).sum(1)[:, None]
        squared += np.square(landmark).sum(1)
        squared /= projections[name].variance(landmark.shape[1]) * len(points)
        total = np.add(total, squared, out=squared)
    return total


def similarities(distances: Array, length: float) -> Array:
    """Return φ from mean distances."""
    phi = distances / (-2 * length**2)
    np.exp(phi, out=phi)
    phi *= KERNEL_GAIN
    return on_grid(phi)


def softmax(scores: Array) -> Array:
    """Return probabilities, row by row."""
    shifted = np.exp(scores - scores.max(1, keepdims=True))
    total: Array = shifted / shifted.sum(1, keepdims=True)
    return total


def cross_entropy(logits: Array, labels: Array) -> float:
    """Return the mean of −log probability of the true class."""
    shifted = logits - logits.max(1, keepdims=True)
    return float((np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]).mean())

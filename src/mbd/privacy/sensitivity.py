"""Sensitivity: the bound Δ that noise is calibrated to, and measured distances.

clipped to a ball of radius C     Δ = 2C, for any two vectors in it
against a reference               ‖W − W^{-m}‖ inside and outside chosen coordinates: measured, never a bound
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mbd.tensors import Array


@dataclass(frozen=True)
class Sensitivity:
    """A bound on the L2 distance between two vectors that noise must make indistinguishable, and why it holds."""

    value: float
    reason: str


def of_ball(radius: float) -> Sensitivity:
    """Return the sensitivity of a vector that was clipped to norm `radius`."""
    return Sensitivity(
        2 * radius,
        f"The vector is scaled down to an L2 norm of at most C = {radius:g} before noise is added. Any two vectors in "
        f"that ball are at most 2C = {2 * radius:g} apart, however they were trained: nothing is assumed about the "
        "loss, the data or the training.",
    )


def clip(vector: Mapping[str, Array], radius: float) -> dict[str, Array]:
    """Scale tensors, taken together as one vector, down to norm `radius` (float64)."""
    norm = np.sqrt(sum(_square(array) for array in vector.values()))
    factor = min(1.0, radius / norm) if norm else 1.0
    return {name: array.astype(np.float64) * factor for name, array in vector.items()}


def distances(
    tensors: Mapping[str, Array], reference: Mapping[str, Array], indices: Mapping[str, Array]
) -> dict[str, float]:
    """Return the L2 distance to a reference of the same shapes at the flat positions in `indices`, and elsewhere."""
    inside = outside = 0.0
    for name, tensor in tensors.items():
        difference = (tensor.astype(np.float64) - reference[name]).ravel()
        chosen = _square(difference[indices[name]]) if name in indices else 0.0
        inside, outside = inside + chosen, outside + max(0.0, _square(difference) - chosen)
    return {"inside": float(np.sqrt(inside)), "outside": float(np.sqrt(outside))}


def _square(array: Array) -> float:
    flat = np.asarray(array, np.float64).ravel()
    return float(flat @ flat)

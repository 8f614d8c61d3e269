"""A check of the accounting by simulation: releases are drawn and their privacy loss counted (the paper's appendix).

Vectors a and b at distance Δ are noised with σ₁, σ₂, …, one release after the other. The loss of releases z_k of a is

    L = Σ_k (‖z_k − b‖² − ‖z_k − a‖²) / 2σ_k²

and the least ε at a given δ is estimated from samples of L in two ways:

    exact      the ε at which E[max(0, 1 − e^(ε − L))] = δ, what (ε, δ) means
    quantile   the ε with P(L > ε) = δ, as in the paper; it is never less than the exact one
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mbd.privacy.gaussian import epsilon_by_gaussian, epsilon_by_paper, epsilon_by_rdp, zcdp
from mbd.randomness import stream
from mbd.tensors import Array

_CHUNK = 1 << 16  # samples at a time
_DIMENSIONS = 4  # of the vectors; the loss depends on their distance alone, which is what is to be seen


@dataclass(frozen=True)
class Composed:
    """After each release: the sum of costs, ε by theory, and ε as it was sampled."""

    rho: tuple[float, ...]
    paper: tuple[float, ...]
    rdp: tuple[float, ...]
    gaussian: tuple[float, ...]
    sampled: tuple[float, ...]
    sampled_quantile: tuple[float, ...]


def check_composition(
    sigmas: Sequence[float], sensitivity: float, delta: float, *, samples: int = 1_000_000, seed: int = 0
) -> Composed:
    """Compare theory with drawn sequences of releases; the tail is seen only if `samples` is well above 1/δ."""
    losses = privacy_losses(sigmas, sensitivity, samples=samples, seed=seed)
    rho = np.cumsum([zcdp(sigma, sensitivity) for sigma in sigmas]).tolist()
    return Composed(
        rho=tuple(rho),
        paper=tuple(epsilon_by_paper(r, delta) for r in rho),
        rdp=tuple(epsilon_by_rdp(r, delta) for r in rho),
        gaussian=tuple(epsilon_by_gaussian(r, delta) for r in rho),
        sampled=tuple(sampled_epsilon(loss, delta) for loss in losses),
        sampled_quantile=tuple(np.quantile(losses, 1 - delta, axis=1).tolist()),
    )


def privacy_losses(sigmas: Sequence[float], sensitivity: float, *, samples: int, seed: int = 0) -> Array:
    """Return the privacy loss of `samples` sequences after each of their releases (releases × samples)."""
    draws = stream(seed, "privacy losses")
    direction = draws.standard_normal(_DIMENSIONS)
    a = draws.standard_normal(_DIMENSIONS)
    b = a + sensitivity * direction / np.linalg.norm(direction)
    scales = np.asarray(sigmas, np.float64)[:, None]
    losses = np.empty((len(scales), samples))
    for start in range(0, samples, _CHUNK):
        part = losses[:, start : start + _CHUNK]
        releases = a + scales[:, :, None] * draws.standard_normal((*part.shape, _DIMENSIONS))
        distances = [((releases - vector) ** 2).sum(axis=2) for vector in (b, a)]
        part[:] = np.cumsum((distances[0] - distances[1]) / (2 * scales**2), axis=0)
    return losses


def sampled_epsilon(losses: Array, delta: float) -> float:
    """Return the ε at which the mean of max(0, 1 − e^(ε − L)) is δ.

    With the losses in descending order the mean over the k largest is (k − e^ε Σ e^(−L)) / n, which is solved for ε.
    """
    ordered = -np.sort(-losses)
    count = np.arange(1, len(ordered) + 1)
    room = count - delta * len(ordered)
    sums = np.cumsum(np.exp(ordered[0] - ordered))
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = np.where(room > 0, np.log(room / sums) + ordered[0], -np.inf)
    # Of all k the right one gives the largest ε: any other leaves out a positive part or takes in a negative one.
    return max(0.0, float(epsilon.max()))

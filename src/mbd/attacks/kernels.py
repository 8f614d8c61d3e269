"""Linear attacks on many layers at once: ridge on kernels, with kind of layer and strength chosen out of fold.

Each matrix of a view (activations of a layer, outputs under masks) gives a kernel k(i, j) = ⟨x_i, x_j⟩ / width of its
standardised columns; ridge on the mean of kernels is ridge on all their columns, in which a wide layer counts no more
than a narrow one. What the attacker itself fed (`input.NAME`) may be in a view as well. For each kind of layer,
for all layers together, and for every strength λ in one batch:

    f(i) = Σ_j k(i, j) α_j,   α = (K + λ I)⁻¹ y
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from mbd.attacks.context import AttackContext
from mbd.tensors import Array

View = Mapping[str, Array]
INPUTS = "input"
"""the kind of the inputs that the attacker fed to the model"""

_STRENGTHS = (0.3, 3.0, 30.0, 300.0)
_REACH = 5.0
_SIGNIFICANT = 2.0  # standard errors
_CONSTANT = 1e-5  # a column that varies less, as a share of its size, is rounding


@dataclass(frozen=True)
class KernelRidge:
    """Predictions of ridge for the fit rows, out of fold, and for the scored rows (a column for each target)."""

    out_of_fold: Tensor
    scored: Tensor
    kernel: Tensor
    """of all layers together, fit rows × fit rows"""
    across: Tensor
    """the same, scored rows × fit rows"""


def fit_kernels(view: View, targets: Tensor, weights: Tensor, attack_context: AttackContext) -> KernelRidge | None:
    """Fit `targets` of the fit rows (n × t), whose errors count by `weights`; None if nothing varies in the view."""
    found = _kernels(view, attack_context)
    if not found:
        return None
    stacked = torch.stack(list(found.values()))
    fitted = stacked[:, attack_context.fit]
    predicted = _out_of_fold(fitted, targets, attack_context.folds)
    kind, strength = _choose(((predicted - targets) ** 2).sum(-1) * weights, list(found))
    centre = targets.mean(0)
    ridge = _STRENGTHS[strength] * torch.eye(len(targets))
    scored = stacked[kind, attack_context.score] @ torch.linalg.solve(fitted[kind] + ridge, targets - centre) + centre
    return KernelRidge(predicted[kind, strength], scored, fitted[-1], stacked[-1, attack_context.score])


def _choose(losses: Tensor, kinds: list[str]) -> tuple[int, int]:
    """Return the kind and the strength of least loss (kinds × strengths × n).

    The inputs that the attacker knows are chosen unless another kind is significantly better, so that two models that
    add nothing to them do not differ by noise.
    """
    means = losses.mean(-1)
    best = divmod(int(means.argmin()), len(_STRENGTHS))
    if INPUTS in kinds:
        place = kinds.index(INPUTS)
        plain = place, int(means[place].argmin())
        if not significantly_less(losses[best], losses[plain]):
            return plain
    return best


def significantly_less(losses: Tensor, than: Tensor) -> Tensor:
    """Whether losses are below others of the same rows (… × n) by more than their difference varies by chance."""
    gain = than - losses
    significant: Tensor = gain.mean(-1) > _SIGNIFICANT * gain.std(-1) / gain.shape[-1] ** 0.5
    return significant


def _kernels(view: View, attack_context: AttackContext) -> dict[str, Tensor]:
    """Return the kernel (rows × fit rows) of each kind of layer, and that of all layers; empty if nothing varies."""
    sums: dict[str, Tensor] = {}
    layers: Counter[str] = Counter()
    for name, matrix in view.items():
        known = matrix is attack_context.known.get(name)
        kernel = _known(attack_context, name) if known else _kernel(matrix, attack_context.fit)
        if kernel is not None:
            kind = _kind(name)
            sums[kind] = sums.get(kind, 0) + kernel
            layers[kind] += 1
    if len(sums) > 1:
        sums["all layers"] = torch.stack(list(sums.values())).sum(0)
        layers["all layers"] = layers.total()
    return {kind: kernel / layers[kind] for kind, kernel in sums.items()}


@lru_cache(maxsize=4)  # every model is given the same inputs
def _known(attack_context: AttackContext, name: str) -> Tensor | None:
    return _kernel(attack_context.known[name], attack_context.fit)


def _kernel(matrix: Array, fit: Array) -> Tensor | None:
    """Return the kernel of one matrix; None if nothing varies in it."""
    x = torch.from_numpy(np.asarray(matrix, np.float32)).flatten(1)
    mean, deviation = x[fit].mean(0), x[fit].std(0)
    varies = deviation > _CONSTANT * (mean.abs() + deviation)
    if not varies.any():
        return None
    x = ((x[:, varies] - mean[varies]) / deviation[varies]).clamp(-_REACH, _REACH)
    return x @ x[fit].T / x.shape[1]


def _kind(name: str) -> str:
    """Return the kind of a layer: `modality.audio.generator.hidden` is a generator's, `fusion.hidden` F's."""
    parts = name.split(".")
    return parts[2] if parts[0] == "modality" and len(parts) > 2 else parts[0]


def _out_of_fold(fitted: Tensor, targets: Tensor, folds: Array) -> Tensor:
    """Return the prediction of ridge for each row from the other folds (kinds × strengths × n × t)."""
    predicted = fitted.new_zeros(len(fitted), len(_STRENGTHS), *targets.shape)
    for fold in np.unique(folds):
        held, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        inside = fitted[:, others][:, None, :, others]
        ridges = torch.stack([strength * torch.eye(len(others)) for strength in _STRENGTHS])
        centre = targets[others].mean(0)
        factor = torch.linalg.cholesky(inside + ridges)
        solved = torch.cholesky_solve((targets[others] - centre).expand(*factor.shape[:2], -1, -1), factor)
        predicted[:, :, held] = fitted[:, held][:, None, :, others] @ solved + centre
    return predicted

"""Attack `relearn`: how few rows of m* bring it back.

The attacker has k rows with m* and the model, feeds m* wherever the model still has weights that read it (connected to
the outputs or not), and fits a ridge map from all activations to the private attribute, and to the part of m* that the
retained modalities do not predict. Several draws of k rows, all solved in one batch:

    K = mean over the layers of the model of Φ Φᵀ k / tr(Φ Φᵀ)     Φ: activations of the k rows, centred
    ŷ = K_new (K + λ)⁻¹ y                                          λ by least leave-one-out error (y_i − ŷ_i)/(1 − h_i)

A model that never saw m* helps the attacker no more than the reference does; any advantage is what it kept.
"""

from collections.abc import Sequence

import numpy as np
import torch

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.bootstrap import balanced_hits, r_squared
from mbd.attacks.context import AttackContext
from mbd.attacks.target_model import TargetModel
from mbd.tensors import Array

NAME = "relearn"
_DRAWS = 8
_STRENGTHS = 10.0 ** np.arange(-2, 4.5, 0.5)
_ROUNDING = 1e-10
_AT_ONCE = 32
"""layers whose kernels are in memory together"""


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return how well k rows of m* teach the attribute and m* itself, for each k of the parameters."""
    layers = list(target_model.extract(attack_context.rows, attack_context.modality, fed=True).activations.values())
    attribute = 2.0 * attack_context.attribute.values[:, None] - 1
    truth, own = attribute[attack_context.score], attack_context.own[attack_context.score]
    counts = sorted({min(k, len(attack_context.fit)) for k in attack_context.params.relearn_rows})
    shots = [_shots(k, attack_context) for k in counts]
    evidence = []
    for k, chosen, (kernel, across) in zip(
        counts, shots, kernels(layers, attack_context.fit, attack_context.score, shots), strict=True
    ):
        known = attack_context.fit[chosen]
        attributes, guessed = few_shot(kernel, across, attribute[known], attack_context.own[known])
        # k rows of one class teach nothing, and the prediction is 0 but for rounding: a guess without information.
        hits = ((attributes > _ROUNDING) == (truth > 0)).mean(0)
        errors = ((guessed - own) ** 2).sum(2).mean(0)
        columns = np.column_stack([truth, hits]), np.column_stack([errors, (own**2).sum(1)])
        groups = attack_context.groups
        evidence += [
            AttackEvidence(NAME, f"accuracy_{k}", 0.5, columns[0], balanced_hits, groups, (0, 1), class_weight=0.5),
            AttackEvidence(NAME, f"r2_{k}", 0.0, columns[1], r_squared, groups, (-np.inf, 1)),
        ]
    return evidence


def _shots(k: int, attack_context: AttackContext) -> Array:
    """Return several draws of k of the fit rows (draws × k)."""
    draw = attack_context.draw(NAME, str(k))
    return np.stack([draw.permutation(len(attack_context.fit))[:k] for _ in range(_DRAWS)])


def kernels(layers: Sequence[Array], fit: Array, score: Array, shots: Sequence[Array]) -> list[tuple[Array, Array]]:
    """Return for each array of shots (of the fit rows) the kernel of its rows (draws × k × k), and of scored rows."""
    rows = np.concatenate([fit, score])
    drawn = np.concatenate([_counts(chosen, len(fit)) for chosen in shots])
    mixed = _mixed(layers[:_AT_ONCE], len(fit), rows, drawn, 1 / max(len(layers), 1))
    for start in range(_AT_ONCE, len(layers), _AT_ONCE):
        mixed += _mixed(layers[start : start + _AT_ONCE], len(fit), rows, drawn, 1 / len(layers))
    each = iter(mixed)
    whole = [
        np.stack([np.take(next(each), columns, axis=1).astype(np.float64) for columns in chosen]) for chosen in shots
    ]
    return [
        _centred(np.take_along_axis(kernel, chosen[:, :, None], axis=1), kernel[:, len(fit) :])
        for chosen, kernel in zip(shots, whole, strict=True)
    ]


def _counts(chosen: Array, of: int) -> Array:
    """Return 1 for each row that a draw has, else 0 (draws × rows)."""
    counts = np.zeros((len(chosen), of))
    np.put_along_axis(counts, chosen, 1, axis=1)
    return counts


def _mixed(layers: Sequence[Array], fit: int, rows: Array, drawn: Array, share: float) -> Array:
    """Return a share of the sum over layers of Φ Φ_fitᵀ k / tr(Φ Φᵀ) for each draw; fit rows come first in `rows`."""
    products, units = np.empty((len(layers), len(rows), fit), np.float32), np.zeros((len(drawn), len(layers)))
    k = drawn.sum(1)
    for place, layer in enumerate(layers):
        x = layer[rows].astype(np.float32, copy=False)
        middle = x[:fit].mean(0, dtype=np.float64)
        x -= middle.astype(np.float32)
        gram = np.matmul(x, x[:fit].T, out=products[place])[:fit].astype(np.float64)
        size = (drawn @ gram.diagonal() - ((drawn @ gram) * drawn).sum(1) / k) / k
        # A layer that is constant over rows has no information; dividing by its rounding errors would amplify them.
        floor = _ROUNDING * float(middle @ middle)
        np.divide(share, size, out=units[:, place], where=size > floor)
    mixed: Array = np.tensordot(units.astype(np.float32), products, axes=1)
    return mixed


def _centred(kernel: Array, across: Array) -> tuple[Array, Array]:
    """Return both kernels centred on the mean of the shots."""
    columns, whole = kernel.mean(1, keepdims=True), kernel.mean((1, 2), keepdims=True)
    across = across - across.mean(2, keepdims=True) - columns + whole
    return kernel - kernel.mean(2, keepdims=True) - columns + whole, across


def few_shot(kernel: Array, across: Array, *targets: Array) -> list[Array]:
    """Return the predictions of ridge for the other rows (draws × n × t) for each of the targets (draws × k × t).

    Targets are known to be around 0: without information the prediction is 0, not the mean of a few rows.
    """
    values, vectors = (part.numpy() for part in torch.linalg.eigh(torch.from_numpy(kernel)))
    values = np.maximum(values, 0)[:, :, None]
    # V diag(λ / (v + λ)) Vᵀ y is what the prediction leaves of y, and its diagonal is 1 − h.
    left = _STRENGTHS / (values + _STRENGTHS)
    apart = np.maximum(vectors**2 @ left, 1e-6) ** 2

    def predicted(known: Array) -> Array:
        projected = vectors.swapaxes(1, 2) @ known
        rests = (vectors @ (left[:, :, s, None] * projected) for s in range(len(_STRENGTHS)))
        squares = np.stack([np.einsum("dkt,dkt->dk", rest, rest) for rest in rests], axis=2)
        errors = (squares / apart).mean(1)
        strength = _STRENGTHS[np.argmin(errors, axis=1)][:, None, None]
        guess: Array = across @ (vectors @ (projected / (values + strength)))
        return guess

    return [predicted(known) for known in targets]


ATTACK = Attack(attack, "how few rows with the deleted modality teach it to the model again")

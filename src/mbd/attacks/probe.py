"""A small residual network that predicts a private attribute from the outputs or activations of a model.

It starts from the linear probe f on the kernels of the view (:mod:`mbd.attacks.kernels`), and its block adds a
nonlinear part from the first principal components x of the view:

    h = x W_in,   g = a f + b + (h + relu(h W_1) W_2) w_out

One member for each fold of the fit rows, all views and folds in one batch. The step with the least out-of-fold loss
counts, the first unless a later one is significantly better, and the members' mean predicts the scored rows. Both
values of the attribute have the same weight, so a guess without information is right for half.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor
from torch.nn import functional

from mbd.attacks.context import AttackContext
from mbd.attacks.kernels import ATTRIBUTE, KernelRidge, View, fit_kernels, significantly_less
from mbd.tensors import Array

_COMPONENTS = 16
_WIDTH = 24
_STEPS = 60
_RATE = 0.02
_DECAY = 0.02
_NEGLIGIBLE = 1e-4


@torch.inference_mode()
def guess(views: Sequence[View], attack_context: AttackContext, name: str) -> list[Array]:
    """Return the prediction of the probe for the scored rows of each view: above 0 for the attribute 1, else for 0."""
    truth = torch.from_numpy(attack_context.attribute.values[attack_context.by_fold]).float()
    weights = truth / (2 * truth.mean()) + (1 - truth) / (2 * (1 - truth.mean()))
    starts = [fit_kernels(view, ATTRIBUTE, weights, attack_context) for view in views]
    informed = [start for start in starts if start is not None]
    residuals = iter(_residual(informed, truth, weights, attack_context, name) if informed else ())
    return [np.ones(len(attack_context.score)) if start is None else next(residuals) for start in starts]


def _residual(
    starts: Sequence[KernelRidge], truth: Tensor, weights: Tensor, attack_context: AttackContext, name: str
) -> list[Array]:
    """Train the networks of all views and folds together; return each view's prediction for the scored rows."""
    folds = torch.zeros(len(attack_context.held_out), len(truth), dtype=torch.bool)  # held out by each member
    for member, held in zip(folds, attack_context.held_out, strict=True):
        member[held] = True
    k, n = len(folds), len(starts)
    x, x_scored = (torch.stack(part) for part in zip(*map(_components, starts), strict=True))
    f, f_scored = (
        torch.stack([part[:, 0] for part in parts]).repeat_interleave(k, 0)
        for parts in ([start.out_of_fold for start in starts], [start.scored for start in starts])
    )
    inside = (~folds).repeat(n, 1) * weights
    inside = inside / inside.sum(1, keepdim=True)
    network = _draw_networks(n * k, x.shape[1], attack_context.draw("probe", name))
    moments, passed, said = (torch.zeros_like(network), torch.zeros_like(network)), [], []
    parts = _parts(network)
    for step in range(_STEPS + 1):
        rectified, output = _forward(parts, x, f)
        passed.append(network.clone())
        said.append(output)
        gradient = _gradient(parts, x, f, rectified, (output.sigmoid() - truth) * inside)
        gradient[:, 2:].add_(network[:, 2:], alpha=2 * _DECAY)
        step_by_adam(network, moments, gradient, step + 1)
    held_out = (torch.stack(said).view(-1, n, k, len(truth)) * folds).sum(2)
    best = _best_step(held_out, truth, weights).repeat_interleave(k)
    kept = torch.stack(passed)[best, torch.arange(n * k)]
    scores = _forward(_parts(kept), x_scored, f_scored)[1].view(n, k, -1).mean(1)
    return [np.asarray(row.numpy(), np.float64) for row in scores]


def _best_step(held_out: Tensor, truth: Tensor, weights: Tensor) -> Tensor:
    """Return the step that counts for each view, by the predictions out of fold after each (steps × views × n)."""
    losses = functional.binary_cross_entropy_with_logits(held_out, truth.expand_as(held_out), reduction="none")
    losses *= weights
    counts = significantly_less(losses, losses[0])
    counts[0] = True
    return losses.mean(-1).masked_fill(~counts, torch.inf).argmin(0)


def _components(start: KernelRidge) -> tuple[Tensor, Tensor]:
    """Return the first principal components of fit and scored rows (× rows), with unit deviation on the fit rows."""
    n = len(start.kernel)
    decomposed = eigh(start.kernel.numpy(), subset_by_index=(max(n - _COMPONENTS, 0), n - 1), check_finite=False)
    values, vectors = map(torch.from_numpy, decomposed)
    vectors *= np.sqrt(n)
    used = values > _NEGLIGIBLE * values[-1]
    scored = start.across @ (vectors / values.clamp(min=1e-12))
    pad = (_COMPONENTS - len(values), 0)
    return functional.pad(vectors * used, pad).T.contiguous(), functional.pad(scored * used, pad).T.contiguous()


def _draw_networks(members: int, inputs: int, draw: np.random.Generator) -> Tensor:
    """Return the weights of all members; the last layer begins at zero, so that training starts at the linear probe."""

    def normal(*shape: int) -> Tensor:
        values = draw.standard_normal((members, *shape)) / np.sqrt(shape[0])
        return torch.from_numpy(values.astype(np.float32)).flatten(1)

    w_in, w_1, w_2 = normal(inputs, _WIDTH), normal(_WIDTH, _WIDTH), normal(_WIDTH, _WIDTH)
    beside = functional.pad(w_1.view(members, _WIDTH, _WIDTH), (0, 1)).flatten(1)
    return torch.cat([torch.tensor([2.0, 0.0]).expand(members, 2), w_in, beside, w_2], dim=1)


def _parts(weights: Tensor) -> tuple[Tensor, ...]:
    """Return a, b, W_in, W_1 with w_out as a last column, and W_2 of all members, as views."""
    inputs, shared = weights.shape[1] - 2 - _WIDTH * (2 * _WIDTH + 1), _WIDTH * (_WIDTH + 1)
    a, b, w_in, w_1_out, w_2 = torch.split_with_sizes(weights, (1, 1, inputs, shared, _WIDTH**2), dim=1)
    n = len(weights)
    return a, b, w_in.view(n, -1, _WIDTH), w_1_out.view(n, _WIDTH, -1), w_2.view(n, _WIDTH, -1)


def _forward(parts: tuple[Tensor, ...], x: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """Return relu(h W_1) and g of each row, all rows side by side; the members of a view (one after the other) share x.

    Weights are multiplied with each other first: they are fewer than rows.
    """
    a, b, w_in, w_1_out, w_2 = parts
    first = torch.bmm(w_1_out.mT, w_in.mT).view(len(x), -1, x.shape[1])
    through = torch.bmm(first, x).view(len(a), _WIDTH + 1, -1)
    rectified = through[:, :-1].relu()
    block = torch.baddbmm(through[:, -1:], torch.bmm(w_2, w_1_out[..., -1:]).mT, rectified)
    return rectified, torch.addcmul(b, a, f).add_(block[:, 0])


def _gradient(parts: tuple[Tensor, ...], x: Tensor, f: Tensor, rectified: Tensor, error: Tensor) -> Tensor:
    """Return the gradient by all weights, where `error` is the derivative of the loss by the output.

    Written out: of networks this small, to record it costs more than to compute it.
    """
    _, _, w_in, w_1_out, w_2 = parts
    w_out, of_row = w_1_out[..., -1:], error[:, None]
    behind = torch.bmm(rectified, of_row.mT)  # by W_2 w_out
    moved = torch.cat([rectified.sign().mul_(of_row), of_row], dim=1).view(len(x), -1, x.shape[2])
    inner = torch.bmm(moved, x.mT).view(len(f), _WIDTH + 1, -1)  # by W_in W_1, and by W_in w_out; transposed
    inner[:, :-1] *= torch.bmm(w_2, w_out)
    by_w_1_out = torch.bmm(inner, w_in).mT.contiguous()
    by_w_1_out[..., -1:] += torch.bmm(w_2.mT, behind)
    by_parts = [torch.bmm(inner.mT, w_1_out.mT), by_w_1_out, torch.bmm(behind, w_out.mT)]
    linear = [(error * f).sum(1, keepdim=True), error.sum(1, keepdim=True)]
    return torch.cat([*linear, *(part.flatten(1) for part in by_parts)], dim=1)


def step_by_adam(
    weights: Tensor, moments: tuple[Tensor, Tensor], gradient: Tensor, step: int, rate: float = _RATE
) -> None:
    """Take step `step` (from 1) of Adam (torch's own loads its compiler first: 2 s)."""
    mean, square = moments
    mean.lerp_(gradient, 0.1)
    square.lerp_(gradient * gradient, 0.001)
    unbiased = rate * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
    weights.addcdiv_(mean, square.sqrt().add_(1e-8), value=-unbiased)

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


def guess(views: Sequence[View], attack_context: AttackContext, name: str) -> list[Array]:
    """Return the prediction of the probe for the scored rows of each view: above 0 for the attribute 1, else for 0."""
    truth = torch.from_numpy(attack_context.attribute.values[attack_context.fit]).float()
    weights = truth / (2 * truth.mean()) + (1 - truth) / (2 * (1 - truth.mean()))
    starts = [fit_kernels(view, ATTRIBUTE, weights, attack_context) for view in views]
    informed = [start for start in starts if start is not None]
    found = iter(_residual(informed, truth, weights, attack_context, name) if informed else ())
    return [np.ones(len(attack_context.score)) if start is None else next(found) for start in starts]


def _residual(
    starts: Sequence[KernelRidge], truth: Tensor, weights: Tensor, attack_context: AttackContext, name: str
) -> list[Array]:
    """Train the networks of all views and folds together; return each view's prediction for the scored rows."""
    folds = torch.from_numpy(
        np.equal.outer(np.unique(attack_context.folds), attack_context.folds)
    )  # held out by each member
    k, n = len(folds), len(starts)
    pairs = [_components(start) for start in starts]
    x, x_scored = (torch.stack(part).repeat_interleave(k, 0) for part in zip(*pairs, strict=True))
    f, f_scored = (
        torch.stack([part[:, 0] for part in parts]).repeat_interleave(k, 0)
        for parts in ([start.out_of_fold for start in starts], [start.scored for start in starts])
    )
    inside = (~folds).repeat(n, 1) * weights
    inside = inside / inside.sum(1, keepdim=True)
    weights_of_all = _draw_networks(n * k, x.shape[2], attack_context.draw("probe", name))
    moments = torch.zeros_like(weights_of_all), torch.zeros_like(weights_of_all)
    first, best, kept = torch.zeros(0), torch.full((n,), torch.inf), weights_of_all.clone()
    for step in range(_STEPS + 1):
        network = _parts(weights_of_all)
        layers = _layers(network, x)
        said = _output(network, layers[-1], f)
        losses = functional.binary_cross_entropy_with_logits(said, truth.expand_as(said), reduction="none")
        now = (losses.view(n, k, -1) * folds).sum(1) * weights
        first = first if step else now
        better = (now.mean(1) < best) & (significantly_less(now, first) | (step == 0))
        best = torch.where(better, now.mean(1), best)
        kept = torch.where(better.repeat_interleave(k)[:, None], weights_of_all, kept)
        gradient = _gradient(network, x, f, layers, (said.sigmoid() - truth) * inside)
        gradient[:, 2:] += 2 * _DECAY * weights_of_all[:, 2:]
        _adam(weights_of_all, moments, gradient, step + 1)
    network = _parts(kept)
    scores = _output(network, _layers(network, x_scored)[-1], f_scored).view(n, k, -1).mean(1)
    return [np.asarray(row.numpy(), np.float64) for row in scores]


def _components(start: KernelRidge) -> tuple[Tensor, Tensor]:
    """Return the first principal components of fit and scored rows, with unit deviation on the fit rows."""
    values, vectors = torch.linalg.eigh(start.kernel)
    values, vectors = values[-_COMPONENTS:], vectors[:, -_COMPONENTS:] * np.sqrt(len(start.kernel))
    used = values > _NEGLIGIBLE * values[-1]
    scored = start.across @ (vectors / values.clamp(min=1e-12))
    pad = (_COMPONENTS - len(values), 0)
    return functional.pad(vectors * used, pad), functional.pad(scored * used, pad)


def _draw_networks(members: int, inputs: int, draw: np.random.Generator) -> Tensor:
    """Return the weights of all members; the last layer begins at zero, so that training starts at the linear probe."""

    def normal(*shape: int) -> Tensor:
        values = draw.standard_normal((members, *shape)) / np.sqrt(shape[0])
        return torch.from_numpy(values.astype(np.float32)).flatten(1)

    hidden = [normal(inputs, _WIDTH), normal(_WIDTH, _WIDTH), normal(_WIDTH, _WIDTH)]
    return torch.cat([torch.tensor([2.0, 0.0]).expand(members, 2), *hidden, torch.zeros(members, _WIDTH)], dim=1)


def _parts(weights: Tensor) -> tuple[Tensor, ...]:
    """Return a, b, W_in, W_1, W_2 and w_out of all members."""
    inputs = weights.shape[1] - 2 - 2 * _WIDTH**2 - _WIDTH
    a, b, *matrices, last = torch.split_with_sizes(weights, (1, 1, inputs, _WIDTH**2, _WIDTH**2, _WIDTH), dim=1)
    return a, b, *(matrix.reshape(len(weights), -1, _WIDTH) for matrix in matrices), last[..., None]


def _layers(network: tuple[Tensor, ...], x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return h, relu(h W_1), and their sum behind W_2."""
    _, _, w_in, w_1, w_2, _ = network
    h = x @ w_in
    rectified = torch.relu(h @ w_1)
    return h, rectified, h + rectified @ w_2


def _output(network: tuple[Tensor, ...], last: Tensor, f: Tensor) -> Tensor:
    a, b, *_, w_out = network
    said: Tensor = a * f + b + (last @ w_out)[..., 0]
    return said


def _gradient(
    network: tuple[Tensor, ...], x: Tensor, f: Tensor, layers: tuple[Tensor, Tensor, Tensor], error: Tensor
) -> Tensor:
    """Return the gradient by all weights, where `error` is the derivative of the loss by the output.

    Written out: of networks this small, to record it costs more than to compute it.
    """
    (_, _, _, w_1, w_2, w_out), (h, rectified, last) = network, layers
    of_last = error[..., None] * w_out.mT
    of_rectified = (of_last @ w_2.mT) * rectified.sign()
    parts = [
        (error * f).sum(1, keepdim=True),
        error.sum(1, keepdim=True),
        x.mT @ (of_last + of_rectified @ w_1.mT),
        h.mT @ of_rectified,
        rectified.mT @ of_last,
        last.mT @ error[..., None],
    ]
    return torch.cat([part.flatten(1) for part in parts], dim=1)


def _adam(weights: Tensor, moments: tuple[Tensor, Tensor], gradient: Tensor, step: int) -> None:
    """Take one step of Adam (torch's own loads its compiler first: 2 s)."""
    mean, square = moments
    mean.lerp_(gradient, 0.1)
    square.lerp_(gradient * gradient, 0.001)
    rate = _RATE * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
    weights.addcdiv_(mean, square.sqrt().add_(1e-8), value=-rate)

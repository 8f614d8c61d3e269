"""A small residual network that predicts a private attribute from the outputs or activations of a model.

It starts from the linear probe f on the kernels of the view (:mod:`mbd.attacks.kernels`), and its block adds a
nonlinear part from the first principal components x of the view:

    h = x W_in,   g = a f + b + (h + relu(h W_1) W_2) w_out

One member for each fold of the fit rows, all views and folds in one batch. The step with the least out-of-fold loss
counts, the first unless a later one is significantly better, and the members' mean predicts the scored rows. Both
values of the attribute have the same weight, so a guess without information is right for half.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import count

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mbd.attacks.context import AttackContext
from mbd.attacks.kernels import KernelRidge, View, fit_kernels, significantly_less
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
    targets = 2 * (truth - truth.mean())[:, None]  # centred, so that 0 lies between both values however common they are
    starts = [fit_kernels(view, targets, weights, attack_context) for view in views]
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
    network = _network(n * k, x.shape[2], attack_context.draw("probe", name))
    descend = _adam(list(network.values()))
    first, best = torch.zeros(0), torch.full((n,), torch.inf)
    kept = torch.zeros(n, x_scored.shape[1])
    for step in range(_STEPS + 1):
        said = _forward(network, x, f)
        losses = functional.binary_cross_entropy_with_logits(said, truth.expand_as(said), reduction="none")
        with torch.no_grad():
            now = (losses.view(n, k, -1) * folds).sum(1) * weights
            first = first if step else now
            better = (now.mean(1) < best) & (significantly_less(now, first) | (step == 0))
            if better.any():
                scores = _forward(network, x_scored, f_scored).view(n, k, -1).mean(1)
                best, kept = torch.where(better, now.mean(1), best), torch.where(better[:, None], scores, kept)
        decay = torch.stack([(value**2).sum() for key, value in network.items() if key.startswith("w")]).sum()
        descend((losses * inside).sum() + _DECAY * decay)
    return [np.asarray(scores.numpy(), np.float64) for scores in kept]


def _adam(weights: list[Tensor]) -> Callable[[Tensor], None]:
    """Return what takes one step of Adam down the gradient of a loss (torch's own loads its compiler first: 2 s)."""
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    steps = count(1)

    def descend(loss: Tensor) -> None:
        step = next(steps)
        rate = _RATE * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for w, g, m, v in zip(weights, gradients, first, second, strict=True):
                m.lerp_(g, 0.1)
                v.lerp_(g * g, 0.001)
                w.addcdiv_(m, v.sqrt().add_(1e-8), value=-rate)

    return descend


def _components(start: KernelRidge) -> tuple[Tensor, Tensor]:
    """Return the first principal components of fit and scored rows, with unit deviation on the fit rows."""
    values, vectors = torch.linalg.eigh(start.kernel)
    values, vectors = values[-_COMPONENTS:], vectors[:, -_COMPONENTS:] * np.sqrt(len(start.kernel))
    used = values > _NEGLIGIBLE * values[-1]
    scored = start.across @ (vectors / values.clamp(min=1e-12))
    pad = (_COMPONENTS - len(values), 0)
    return functional.pad(vectors * used, pad), functional.pad(scored * used, pad)


def _network(members: int, inputs: int, draw: np.random.Generator) -> dict[str, Tensor]:
    """Return the weights of all members; the last layer begins at zero, so that training starts at the linear probe."""

    def normal(*shape: int) -> Tensor:
        values = draw.standard_normal((members, *shape)) / np.sqrt(shape[0])
        return torch.from_numpy(values.astype(np.float32)).requires_grad_()

    return {
        "a": torch.full((members, 1), 2.0).requires_grad_(),
        "b": torch.zeros(members, 1).requires_grad_(),
        "w_in": normal(inputs, _WIDTH),
        "w_1": normal(_WIDTH, _WIDTH),
        "w_2": normal(_WIDTH, _WIDTH),
        "w_out": torch.zeros(members, _WIDTH, 1).requires_grad_(),
    }


def _forward(network: Mapping[str, Tensor], x: Tensor, f: Tensor) -> Tensor:
    h = x @ network["w_in"]
    h = h + torch.relu(h @ network["w_1"]) @ network["w_2"]
    said: Tensor = network["a"] * f + network["b"] + (h @ network["w_out"])[..., 0]
    return said

"""Per-sample gradients by a parameter that a network uses outside of layers: positions, class tokens, gates.

    f(x_1, P), …, f(x_n, P)  →  f(x_1, P_1), …, f(x_n, P_n)   with P_i = P         ∂L_i/∂P = ∂(Σ_j L_j)/∂P_i

Every sample is given a copy of its own, so one backward pass has the gradients of all of them. That works where the
parameter meets the samples by broadcasting, as in x + P. Whether it does is tried on a few samples: the values must be
the same, and the gradient by the i-th copy must follow the weight of the i-th sample in the sum, and no other.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

Run = Callable[[Tensor, int], Tensor]
"""from the copies of a parameter and a number of samples to n × K values"""
Axes = tuple[int, ...]
"""the shape of all copies, with −1 for the number of samples"""

_FURTHER_AXES = 2  # of time or space, between that of the samples and those of the parameter
_AGREES = 1e-4  # relative difference that rounding may explain


def copied(parameter: Tensor, axes: Axes, samples: int) -> Tensor:
    """Return a copy of the parameter for each sample, by which gradients can be taken."""
    shape = [samples if size < 0 else size for size in axes]
    return parameter.detach().reshape([1 if size < 0 else size for size in axes]).expand(shape).clone().requires_grad_()


def axes_of_copies(parameter: Tensor, run: Run, values: Mapping[int, Tensor]) -> Axes | None:
    """Return how the copies of a parameter are laid out, or None if the network cannot take a copy for each sample.

    Args:
        parameter: The parameter.
        run: Runs the network with copies.
        values: What it gives without copies, for several numbers of samples: these tell samples from a sequence that is
            as long.

    """
    for axes in _layouts(tuple(parameter.shape)):
        if all(_separate(copied(parameter, axes, samples), run, wanted) for samples, wanted in values.items()):
            return axes
    return None


def _layouts(shape: Axes) -> Iterator[Axes]:
    for further in range(_FURTHER_AXES + 1):
        yield (-1, *[1] * further, *shape)
    if shape and shape[0] == 1:
        yield (-1, *shape[1:])


def _separate(own: Tensor, run: Run, wanted: Tensor) -> bool:
    """Whether a network gives the same values with a copy for each sample, and each depends on its own copy alone."""
    weights = torch.arange(1.0, len(own) + 1, dtype=wanted.dtype, device=wanted.device)
    try:
        values = run(own, len(own))
        once, weighted = (
            torch.autograd.grad(total, own, retain_graph=True)[0]
            for total in (values.sum(), (values.sum(1) * weights).sum())
        )
    except Exception:  # code of the user's, given a shape that it was not written for
        return False
    apart = once * weights.reshape(-1, *[1] * (once.ndim - 1))
    return bool(
        values.shape == wanted.shape
        and (values - wanted).norm() <= _AGREES * wanted.norm()
        and apart.norm() > 0
        and (weighted - apart).norm() <= _AGREES * apart.norm()
    )

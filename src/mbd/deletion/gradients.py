"""Sums over samples of per-sample gradients, by `torch.func`: Σ_i g_iq, Σ_i |g_iq| or Σ_i g_iq² with g_iq = ∂L_i/∂w_q.

Only parameters that are asked for and that a loss reaches are differentiated, for as many samples at a time as can be
held. Where an operation of a module has no rule for single samples (a GRU over packed sequences), nothing is known of
these parameters, and they are named.
"""

import logging
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from mbd.model.contract import evaluating

_LOG = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]
"""tensors whose first axis is the sample"""
Losses = Callable[[nn.Module, Batch], Tensor]
"""from a network and a batch to n × K: K values for each sample, which depend on that sample only"""
Form = Literal["plain", "absolute", "square"]
"""what is summed over samples: g, |g| or g²"""

LARGEST = 1 << 22
"""numbers of per-sample gradients that are held at a time"""
_FORMS: dict[Form, Callable[[Tensor], Tensor]] = {"plain": lambda g: g, "absolute": Tensor.abs, "square": Tensor.square}


@dataclass
class Sums:
    """Sums over the samples so far, in the precision of the network."""

    rows: int = 0
    totals: dict[Form, dict[str, Tensor]] = field(default_factory=dict)
    """for each form, the sum over samples by parameter; a parameter that is missing has never had a gradient"""
    unknown: set[str] = field(default_factory=set)
    """parameters whose gradients cannot be computed sample by sample"""

    def add(self, form: Form, name: str, gradients: Tensor) -> None:
        """Add the gradients of some samples (n × shape)."""
        total, own = _FORMS[form](gradients).sum(0), self.totals.setdefault(form, {})
        own[name] = own[name].add_(total) if name in own else total


def sum_over_samples(
    network: nn.Module,
    losses: Losses,
    batches: Iterable[Batch],
    forms: tuple[Form, ...],
    names: Collection[str] | None = None,
) -> Sums:
    """Return the sums of the gradients of `losses`, whose k-th value for a sample is summed in the k-th form.

    Args:
        network: The network; it is run in evaluation mode.
        losses: As many values for each sample as there are forms.
        batches: The samples.
        forms: What is summed of each value.
        names: Parameters whose gradients are wanted; None: all.

    """
    call, sums = _Call(network, losses), Sums(totals={form: {} for form in forms})
    wanted = {n: p.detach() for n, p in network.named_parameters() if names is None or n in names}
    with evaluating(network), torch.enable_grad():
        for batch in batches:
            samples = len(next(iter(batch.values())))
            sums.rows += samples
            reached = {n: p for n, p in _reached(call, wanted, batch).items() if n not in sums.unknown}
            if not reached:
                continue
            at_once = max(1, LARGEST // (len(forms) * sum(p.numel() for p in reached.values())))
            try:
                for start in range(0, samples, at_once):
                    part = {key: value[start : start + at_once] for key, value in batch.items()}
                    for name, gradients in _per_sample(call, reached, part).items():
                        for column, form in enumerate(forms):
                            sums.add(form, name, gradients[:, column])
            except (RuntimeError, ValueError, TypeError) as error:  # an operation that vmap has no rule for
                _LOG.debug("no gradients sample by sample of %s: %s", sorted(reached), error)
                sums.unknown |= set(reached)
    return sums


class _Call(nn.Module):
    """Losses as a module, so that parameters can be replaced for one call."""

    def __init__(self, network: nn.Module, losses: Losses) -> None:
        super().__init__()
        self.network, self.losses = network, losses
        # A tied weight has several places in the network; one submodule under two names is one place.
        places: dict[tuple[nn.Module, str], str] = {}
        for name, _ in network.named_parameters(remove_duplicate=False):
            owner, _, leaf = name.rpartition(".")
            places.setdefault((network.get_submodule(owner), leaf), name)
        self._places: dict[Tensor, list[str]] = {}
        for name in places.values():
            self._places.setdefault(network.get_parameter(name), []).append(f"network.{name}")

    def forward(self, batch: Batch) -> Tensor:
        return self.losses(self.network, batch)

    def with_parameters(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        own = {place: p for n, p in parameters.items() for place in self._places[self.network.get_parameter(n)]}
        values: Tensor = functional_call(self, own, (batch,), tie_weights=False)
        return values


def _reached(call: _Call, wanted: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """Return the parameters that the losses of a batch depend on."""
    free = {name: parameter.detach().requires_grad_() for name, parameter in wanted.items()}
    total = call.with_parameters(free, batch).sum()
    if not free or not total.requires_grad:
        return {}
    gradients = torch.autograd.grad(total, list(free.values()), allow_unused=True)
    return {name: wanted[name] for name, gradient in zip(free, gradients, strict=True) if gradient is not None}


def _per_sample(call: _Call, parameters: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
    """Return the gradients of all values of all samples of a batch (n × K × shape each)."""

    def values(own: dict[str, Tensor], sample: dict[str, Tensor]) -> Tensor:
        return call.with_parameters(own, {key: value[None] for key, value in sample.items()})[0]

    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():  # the other kernels have no rule for vmap
        warnings.filterwarnings("ignore", "There is a performance drop")  # operations without a rule, one by one
        jacobians: dict[str, Tensor] = vmap(jacrev(values), in_dims=(None, 0))(parameters, dict(batch))
    return {name: gradients.detach() for name, gradients in jacobians.items()}

"""Sums over samples of per-sample gradients by every parameter of a network, batch after batch.

For each parameter w_q: Σ_i g_iq, Σ_i |g_iq| or Σ_i g_iq², with g_iq = ∂L_i/∂w_q. The closed forms of
:mod:`mbd.deletion.layers` cost one forward, one backward and one product for each layer. Before they are trusted,
Σ_i g_iq of a few samples is compared with autograd. A parameter of no such layer is given to every sample as a copy
(:mod:`mbd.deletion.copies`). Where that cannot be, and where both differ (a weight that is also used outside its
layer), it goes through `torch.func`, sample by sample, and is listed.

Sums are additive: a batch is finished before the next is read, and the sums of shards add up to those of the whole.
Products have the network's precision and are added up in float64. Sums of |g| or g² in float32 are added without
rounding that way, so the order of batches and their distribution to processes do not matter.
"""

import logging
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from mbd.deletion.copies import Axes, axes_of_copies, copied
from mbd.deletion.layers import Energy, LayerRow, Recorder, sample_axes, with_closed_form
from mbd.deletion.per_sample import LARGEST, Explicit, Form, Gradient
from mbd.model.contract import evaluating

_logger = logging.getLogger(__name__)

Batch = Mapping[str, Tensor]
"""tensors whose first axis is the sample"""
Losses = Callable[[nn.Module, Batch], Tensor]
"""from a network and a batch to n × K: K values for each sample, which depend on that sample only"""

_TRIED = 32  # samples on which the closed form is compared with autograd
_AGREES = 1e-4  # difference that rounding may explain, as a share of Σ|g|
_ROUNDING = 1e-6  # and as a share of the largest gradient by any parameter, where terms of Σ|g| cancel


@dataclass
class Sums:
    """Sums over the samples so far."""

    rows: int = 0
    totals: dict[Form, dict[str, Tensor]] = field(default_factory=dict)
    """for each form, the sum over samples by parameter; a parameter that is missing has never had a gradient"""
    energies: dict[str, Energy] = field(default_factory=dict)
    """of every parameter that was used; these and what follows only where some gradients are summed as they are"""
    largest_gradient: float = 0.0
    """largest norm of one sample's gradient by all parameters"""
    largest_input: float = 0.0
    """largest norm of one sample's input of a layer"""
    by_vmap: set[str] = field(default_factory=set)
    """parameters without a closed form"""
    unknown: set[str] = field(default_factory=set)
    """parameters whose gradients cannot be computed sample by sample"""

    def on_cpu(self) -> "Sums":
        """Return the same sums in main memory, where those of several devices can be added."""
        totals = {form: {name: total.cpu() for name, total in own.items()} for form, own in self.totals.items()}
        energies = {name: Energy(energy.own.cpu(), energy.row.cpu()) for name, energy in self.energies.items()}
        return replace(self, totals=totals, energies=energies)

    def __iadd__(self, other: "Sums") -> "Sums":
        self.rows += other.rows
        for form, totals in other.totals.items():
            own = self.totals.setdefault(form, {})
            for name, total in totals.items():
                own[name] = own[name].add_(total) if name in own else total.to(torch.float64, copy=True)
        for name, energy in other.energies.items():
            self.energies[name] = self.energies[name] + energy if name in self.energies else energy
        self.largest_gradient = max(self.largest_gradient, other.largest_gradient)
        self.largest_input = max(self.largest_input, other.largest_input)
        self.by_vmap |= other.by_vmap
        self.unknown |= other.unknown
        return self


def sum_over_samples(
    network: nn.Module,
    losses: Losses,
    batches: Iterable[Batch],
    forms: tuple[Form, ...],
    rows: Mapping[str, LayerRow] | None = None,
) -> Sums:
    """Return the sums of the gradients of `losses`, whose k-th value for a sample is summed in the k-th form.

    `rows` names the parameters that the network gives to every sample, and where they enter.
    """
    call, sums = _Call(network, losses), Sums()
    layout: _Layout | None = None
    with evaluating(network), torch.enable_grad():
        for batch in batches:
            if layout is None:
                layout = _Layout.of(call, _part(batch, slice(_TRIED)), rows or {})
                sums.by_vmap, sums.unknown = layout.by_vmap, layout.unknown
            samples, at_once = _samples(batch), layout.at_once(call)
            for start in range(0, samples, at_once):
                _add(sums, call, _part(batch, slice(start, start + at_once)), forms, layout)
    return sums


class _Call(nn.Module):
    """Losses as a module, so that parameters can be replaced for one call."""

    def __init__(self, network: nn.Module, losses: Losses) -> None:
        super().__init__()
        self.network, self.losses = network, losses

    def forward(self, batch: Batch) -> Tensor:
        return self.losses(self.network, batch)

    def with_parameters(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        values: Tensor = functional_call(self, {f"network.{n}": p for n, p in parameters.items()}, (batch,))
        return values


def _add(sums: Sums, call: _Call, batch: Batch, forms: tuple[Form, ...], layout: "_Layout") -> None:
    """Add the sums of a batch."""
    samples = _samples(batch)
    recorder, copies = layout.recorder(call, samples), layout.copies(call, samples)
    with recorder.on():
        values = call.with_parameters(copies, batch) if copies else call(batch)
    recorder.given(copies)
    sums += Sums(samples)
    for column, form in enumerate(forms):
        norms = values.new_zeros(samples)
        for part, gradients in _gradients(call, batch, column, recorder, values, layout):
            sums += Sums(totals={form: {name: gradient.total(form) for name, gradient in gradients.items()}})
            if form == "plain":
                norms[part] += sum(gradient.squared_norms() for gradient in gradients.values())
        sums.largest_gradient = max(sums.largest_gradient, float(norms.max().sqrt()))
    if "plain" in forms:
        sums += Sums(energies=recorder.energies(), largest_input=recorder.largest_input())


def _gradients(
    call: _Call, batch: Batch, column: int, recorder: Recorder, values: Tensor, layout: "_Layout"
) -> Iterator[tuple[slice, dict[str, Gradient]]]:
    """Yield gradients by parameter: of all samples in closed form, then of a few samples at a time by vmap."""
    closed = recorder.gradients(values[:, column].sum())
    left_out = layout.by_vmap | layout.unknown
    yield slice(len(values)), {name: gradient for name, gradient in closed.items() if name not in left_out}
    if not layout.by_vmap:
        return
    size = sum(call.network.get_parameter(name).numel() for name in layout.by_vmap)
    at_once = max(1, LARGEST // size)
    for start in range(0, len(values), at_once):
        part = slice(start, start + at_once)
        yield part, _by_vmap(call, _part(batch, part), column, layout.by_vmap)


def _by_vmap(call: _Call, batch: Batch, column: int, names: Collection[str]) -> dict[str, Gradient]:
    """Return the gradients of all samples of a batch by some parameters."""
    free = {name: call.network.get_parameter(name).detach() for name in sorted(names)}

    def loss(parameters: dict[str, Tensor], sample: dict[str, Tensor]) -> Tensor:
        return call.with_parameters(parameters, {key: value[None] for key, value in sample.items()})[0, column]

    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():  # the other kernels have no rule for vmap
        warnings.filterwarnings("ignore", "There is a performance drop")  # operations without a rule, one by one
        found = vmap(grad(loss), in_dims=(None, 0))(free, dict(batch))
    return {name: Explicit(gradient.detach()) for name, gradient in found.items()}


@dataclass(frozen=True)
class _Layout:
    """How the gradients by each parameter of a network are found."""

    rows: Mapping[str, LayerRow]
    axes: Mapping[nn.Module, int]
    """on which axis of its input a layer has the samples"""
    own: Mapping[str, Axes]
    """parameters of which every sample is given a copy, and how these lie"""
    by_vmap: set[str]
    """parameters without a closed form"""
    unknown: set[str]
    """parameters that torch.func cannot differentiate sample by sample either"""

    @classmethod
    def of(cls, call: _Call, batch: Batch, rows: Mapping[str, LayerRow]) -> "_Layout":
        """Try all ways on a few samples."""
        samples = _samples(batch)
        sizes = (samples, samples - 1) if samples > 1 else (samples,)
        axes = sample_axes(call.network, lambda size: call(_part(batch, slice(size))), sizes)
        layout = cls(rows, axes, {}, set(), set())
        differs = _without_closed_form(call, batch, layout)
        own = _copied_parameters(call, batch, sorted(differs - with_closed_form(call.network, rows)))
        differs -= set(own)
        if not differs:
            return replace(layout, own=own)
        try:
            _by_vmap(call, _part(batch, slice(2)), 0, differs)
        except (RuntimeError, ValueError, TypeError) as error:  # an operation that vmap has no rule for
            _logger.debug("no gradients sample by sample of %s: %s", sorted(differs), error)
            return replace(layout, own=own, unknown=differs)
        return replace(layout, own=own, by_vmap=differs)

    def copies(self, call: _Call, samples: int) -> dict[str, Tensor]:
        """Return the copies for a batch of so many samples, by parameter."""
        return {name: copied(call.network.get_parameter(name), axes, samples) for name, axes in self.own.items()}

    def at_once(self, call: _Call) -> int:
        """Return for how many samples copies can be held at a time; without copies, for all."""
        size = sum(call.network.get_parameter(name).numel() for name in self.own)
        return max(1, LARGEST // size) if size else sys.maxsize

    def recorder(self, call: _Call, samples: int) -> Recorder:
        """Return a recorder for a batch of so many samples."""
        return Recorder(call.network, samples, self.rows, self.axes)


def _copied_parameters(call: _Call, batch: Batch, names: Collection[str]) -> dict[str, Axes]:
    """Return which of these parameters every sample can be given a copy of, and how the copies lie."""
    samples = _samples(batch)
    if not names or samples < 2:  # with one sample nothing shows that samples are kept apart
        return {}
    with torch.no_grad():
        values = {size: call(_part(batch, slice(size))) for size in (samples, samples - 1)}

    def axes_of(name: str) -> Axes | None:
        return axes_of_copies(
            call.network.get_parameter(name),
            lambda copies, size: call.with_parameters({name: copies}, _part(batch, slice(size))),
            values,
        )

    return {name: axes for name in names if (axes := axes_of(name))}


def _without_closed_form(call: _Call, batch: Batch, layout: _Layout) -> set[str]:
    """Return the parameters whose closed form is missing, or differs from autograd on this batch."""
    recorder = layout.recorder(call, _samples(batch))
    with recorder.on():
        closed = recorder.gradients(call(batch).sum())
    free = {name: parameter.detach().requires_grad_() for name, parameter in call.network.named_parameters()}
    total = call.with_parameters(free, batch).sum()
    if not total.requires_grad:
        return set()
    true = torch.autograd.grad(total, list(free.values()), allow_unused=True)
    covered = with_closed_form(call.network, layout.rows)
    floor = _ROUNDING * max((float(g.norm()) for g in true if g is not None), default=0.0)
    differs = set()
    for name, gradient in zip(free, true, strict=True):
        if gradient is None and name not in closed:
            continue
        zero = torch.zeros_like(free[name])
        found, scale = (closed[name].total(form) if name in closed else zero for form in ("plain", "absolute"))
        error = (found - (zero if gradient is None else gradient)).norm()
        if name not in covered or error > _AGREES * scale.norm() + floor:
            differs.add(name)
    return differs


def _samples(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def _part(batch: Batch, part: slice) -> dict[str, Tensor]:
    return {key: value[part] for key, value in batch.items()}

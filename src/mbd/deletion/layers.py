"""Per-sample gradients of a network in closed form, from one forward and one backward pass.

While a :class:`Recorder` is on, it records input and output of each use of a layer; the gradient of the loss by the
output then gives the gradient of every sample i by the layer's parameters:

    Linear       ∂L_i/∂W = Σ_t g_it x_itᵀ,   ∂L_i/∂b = Σ_t g_it        t: the uses of the layer for one sample
    LayerNorm    ∂L_i/∂w = Σ_t g_it ∘ x̂_it,  ∂L_i/∂b = Σ_t g_it
    row          ∂L_i/∂P = Σ_t g_itᵀ W_P     a row P that every sample gets as the columns W_P of a Linear's input

Sums over samples of |·| or (·)² never need all entries at once: Σ_i |g_i x_iᵀ| = |G|ᵀ|X| where a weight is used once
for a sample; where it is used more often, a few samples are taken at a time.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Form = Literal["plain", "absolute", "square"]
"""what is summed over samples: g, |g| or g²"""

LARGEST = 1 << 22
"""numbers of per-sample gradients that are held at a time"""


@dataclass(frozen=True)
class Explicit:
    """Gradients that are held as they are: n × shape."""

    values: Tensor

    def total(self, form: Form) -> Tensor:
        """Return the sum of g, |g| or g² over the samples."""
        return _apply(form, self.values).sum(0)

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖² of each sample."""
        return self.values.reshape(len(self.values), -1).square().sum(1)


@dataclass(frozen=True)
class Outer:
    """Gradients Σ_t g_it x_itᵀ by a matrix: g is n × T × outputs, x is n × T × inputs."""

    g: Tensor
    x: Tensor

    def total(self, form: Form) -> Tensor:
        """Return the sum of g, |g| or g² over the samples."""
        if form == "plain" or self.g.shape[1] == 1:
            return _apply(form, self.g).flatten(0, 1).T @ _apply(form, self.x).flatten(0, 1)
        at_once = max(1, LARGEST // (self.g.shape[2] * self.x.shape[2]))
        total = self.g.new_zeros(self.g.shape[2], self.x.shape[2])
        for start in range(0, len(self.g), at_once):
            part = slice(start, start + at_once)
            total += _apply(form, torch.einsum("nto,nti->noi", self.g[part], self.x[part])).sum(0)
        return total

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖² of each sample."""
        if self.g.shape[1] == 1:
            return self.g.square().sum((1, 2)) * self.x.square().sum((1, 2))
        return ((self.g @ self.g.mT) * (self.x @ self.x.mT)).sum((1, 2))


Gradient = Explicit | Outer
"""the gradients of all samples of a batch by one parameter"""


def _joined(one: Gradient, other: Gradient) -> Gradient:
    """Return the gradient by a parameter that is used in two places."""
    if isinstance(one, Outer) and isinstance(other, Outer):
        return Outer(torch.cat([one.g, other.g], 1), torch.cat([one.x, other.x], 1))
    if isinstance(one, Explicit) and isinstance(other, Explicit):
        return Explicit(one.values + other.values)
    raise ValueError("one parameter cannot be a matrix in one place and a vector in another")


def _apply(form: Form, values: Tensor) -> Tensor:
    if form == "plain":
        return values
    return values.abs() if form == "absolute" else values.square()


@dataclass(frozen=True)
class LayerRow:
    """A parameter of shape 1 × d that every sample gets (like P^m): as these input columns of this Linear's weight."""

    weight: str
    columns: slice


@dataclass(frozen=True)
class Energy:
    """x² of what a parameter is multiplied with, and S, x² summed over its row; both summed over samples and uses."""

    own: Tensor
    row: Tensor

    def __add__(self, other: "Energy") -> "Energy":
        return Energy(self.own + other.own, self.row + other.row)


@dataclass(frozen=True)
class _LinearUse:
    weight: str
    bias: str | None
    x: Tensor
    out: Tensor
    rows: Mapping[str, Tensor]
    """for each row parameter among the inputs, the columns of the weight that it is multiplied with"""

    def gradients(self, g: Tensor) -> Iterator[tuple[str, Gradient]]:
        g, x = (values.reshape(len(values), -1, values.shape[-1]) for values in (g, self.x))
        yield self.weight, Outer(g, x)
        entries = g.sum(1) if g.shape[1] > 1 else g[:, 0]
        if self.bias:
            yield self.bias, Explicit(entries)
        for name, columns in self.rows.items():
            yield name, Explicit((entries @ columns)[:, None])

    def energies(self) -> Iterator[tuple[str, Energy]]:
        inputs = self.x.flatten(0, -2)
        own, uses = inputs.square().sum(0).double(), _number(len(inputs), self.x)
        row = own.sum() + (uses if self.bias else 0)
        yield self.weight, Energy(own, row)
        if self.bias:
            yield self.bias, Energy(uses, row)
        for name, columns in self.rows.items():
            yield name, Energy(uses, uses * columns.shape[1])


@dataclass(frozen=True)
class _NormUse:
    weight: str
    bias: str | None
    x: Tensor
    out: Tensor
    layer: nn.LayerNorm

    def gradients(self, g: Tensor) -> Iterator[tuple[str, Gradient]]:
        shape = (len(g), -1, *self.layer.normalized_shape)
        yield self.weight, Explicit((g * self._normalised()).reshape(shape).sum(1))
        if self.bias:
            yield self.bias, Explicit(g.reshape(shape).sum(1))

    def energies(self) -> Iterator[tuple[str, Energy]]:
        inputs = self._normalised().reshape(-1, *self.layer.normalized_shape)
        own, uses = inputs.square().sum(0).double(), _number(len(inputs), self.x)
        row = own + (uses if self.bias else 0)
        yield self.weight, Energy(own, row)
        if self.bias:
            yield self.bias, Energy(uses, row)

    def _normalised(self) -> Tensor:
        return functional.layer_norm(self.x, self.layer.normalized_shape, eps=self.layer.eps)


def _number(value: int, like: Tensor) -> Tensor:
    return torch.tensor(float(value), dtype=torch.float64, device=like.device)


def with_closed_form(network: nn.Module, rows: Mapping[str, LayerRow]) -> set[str]:
    """Return the names of the parameters whose gradients a :class:`Recorder` can compute."""
    layers = {id(p) for layer in network.modules() if type(layer) in _LAYERS for p in layer.parameters()}
    return {name for name, parameter in network.named_parameters() if id(parameter) in layers} | set(rows)


_LAYERS = (nn.Linear, nn.LayerNorm)


class Recorder:
    """Records every use of the layers of `network` that have a closed form, for a batch of `samples`."""

    def __init__(self, network: nn.Module, samples: int, rows: Mapping[str, LayerRow]) -> None:
        self._network, self._samples, self._rows = network, samples, rows
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
        self._uses: list[_LinearUse | _NormUse] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record within this context."""
        layers = [layer for layer in self._network.modules() if type(layer) in _LAYERS]
        hooks = [layer.register_forward_hook(self._note) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _note(self, layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
        assert isinstance(layer, _LAYERS)  # noqa: S101 -- no other layer is hooked
        x = inputs[0].detach()
        if layer.weight is None or x.ndim < 2 or len(x) != self._samples:
            return out
        if not out.requires_grad:
            out.requires_grad_()
        weight, bias = self._names[layer.weight], None if layer.bias is None else self._names[layer.bias]
        if isinstance(layer, nn.LayerNorm):
            self._uses.append(_NormUse(weight, bias, x, out, layer))
        else:
            own = {n: layer.weight.detach()[:, row.columns] for n, row in self._rows.items() if row.weight == weight}
            self._uses.append(_LinearUse(weight, bias, x, out, own))
        return out.clone()  # an operation in place, further on, must not change what is recorded here

    def gradients(self, total: Tensor) -> dict[str, Gradient]:
        """Return the per-sample gradients of `total`, a sum over samples, by the name of the parameter."""
        if not total.requires_grad or not self._uses:
            return {}
        found = torch.autograd.grad(total, [use.out for use in self._uses], retain_graph=True, allow_unused=True)
        gradients: dict[str, Gradient] = {}
        for use, g in zip(self._uses, found, strict=True):
            for name, part in use.gradients(g) if g is not None else ():
                gradients[name] = _joined(gradients[name], part) if name in gradients else part
        return gradients

    def energies(self) -> dict[str, Energy]:
        """Return x² and S of every parameter that was used."""
        energies: dict[str, Energy] = {}
        for use in self._uses:
            for name, part in use.energies():
                energies[name] = energies[name] + part if name in energies else part
        return energies

    def largest_input(self) -> float:
        """Return the largest norm of what went into a layer for one sample."""
        norms = [use.x.flatten(1).norm(dim=1).max() for use in self._uses]
        return float(torch.stack(norms).max()) if norms else 0.0

"""Per-sample gradients of a network in closed form, from one forward and one backward pass.

While a :class:`Recorder` is on, it records input and output of each use of a layer; the gradient of the loss by the
output then gives the gradient of every sample i by the layer's parameters:

    Linear       ∂L_i/∂W = Σ_t g_it x_itᵀ,   ∂L_i/∂b = Σ_t g_it        t: the uses of the layer for one sample
    Conv         the same with the patches x_it that the kernel is laid on
    attention    the same for each projection of a MultiheadAttention
    Embedding    ∂L_i/∂E_v = Σ_t [id_it = v] g_it
    LayerNorm    ∂L_i/∂w = Σ_t g_it ∘ x̂_it,  ∂L_i/∂b = Σ_t g_it
    row          ∂L_i/∂P = Σ_t g_itᵀ W_P     a row P that every sample gets as the columns W_P of a Linear's input
    copies       ∂L_i/∂P = g_i               any other parameter of which every sample can be given a copy (`copies`)
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mbd.deletion.attention import is_plain_attention, opened
from mbd.deletion.per_sample import Explicit, Gradient, Outer, Scattered, joined


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


@dataclass(frozen=True)
class _ConvUse:
    weight: str
    bias: str | None
    x: Tensor
    out: Tensor
    layer: nn.Conv1d | nn.Conv2d

    def gradients(self, g: Tensor) -> Iterator[tuple[str, Gradient]]:
        g = g.flatten(2).mT
        yield self.weight, Outer(g, self._patches(), tuple(self.layer.weight.shape))
        if self.bias:
            yield self.bias, Explicit(g.sum(1))

    def energies(self) -> Iterator[tuple[str, Energy]]:
        inputs = self._patches().flatten(0, 1)
        own, uses = inputs.square().sum(0).double(), _number(len(inputs), self.x)
        row = own.sum() + (uses if self.bias else 0)
        yield self.weight, Energy(own.reshape(self.layer.weight.shape[1:]), row)
        if self.bias:
            yield self.bias, Energy(uses, row)

    def _patches(self) -> Tensor:
        """Return what the kernel is laid on: n × places × (channels · kernel)."""
        layer, flat = self.layer, self.x.ndim == 3
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x = functional.pad(self.x, layer._reversed_padding_repeated_twice, mode=mode)
        kernel, dilation, stride = (
            (1, *sizes) if flat else sizes for sizes in (layer.kernel_size, layer.dilation, layer.stride)
        )
        return functional.unfold(x[:, :, None] if flat else x, kernel, dilation, 0, stride).mT


@dataclass(frozen=True)
class _EmbeddingUse:
    weight: str
    x: Tensor
    out: Tensor
    layer: nn.Embedding

    def gradients(self, g: Tensor) -> Iterator[tuple[str, Gradient]]:
        ids = self.x.reshape(len(self.x), -1)
        g = g.reshape(*ids.shape, -1)
        if self.layer.padding_idx is not None:
            g = g * (ids != self.layer.padding_idx)[:, :, None]
        yield self.weight, Scattered(ids, g, self.layer.num_embeddings)

    def energies(self) -> Iterator[tuple[str, Energy]]:
        counts = torch.bincount(self.x.flatten(), minlength=self.layer.num_embeddings).double()
        yield self.weight, Energy(counts[:, None], counts.sum())


@dataclass(frozen=True)
class _ProjectionUse:
    """Some rows of a matrix with their biases: the packed projections of an attention."""

    weight: str
    bias: str | None
    x: Tensor
    out: Tensor
    rows: slice
    size: int
    """rows of the whole matrix"""

    def gradients(self, g: Tensor) -> Iterator[tuple[str, Gradient]]:
        whole = g.new_zeros(*g.shape[:2], self.size)
        whole[:, :, self.rows] = g
        yield self.weight, Outer(whole, self.x)
        if self.bias:
            yield self.bias, Explicit(whole.sum(1))

    def energies(self) -> Iterator[tuple[str, Energy]]:
        inputs = self.x.flatten(0, 1)
        uses = torch.zeros(self.size, 1, dtype=torch.float64, device=inputs.device)
        uses[self.rows] = float(len(inputs))
        own = (uses > 0) * inputs.square().sum(0).double()
        row = own.sum(1, keepdim=True) + (uses if self.bias else 0)
        yield self.weight, Energy(own, row)
        if self.bias:
            yield self.bias, Energy(uses[:, 0], row[:, 0])


@dataclass(frozen=True)
class _CopyUse:
    """A parameter of which every sample has a copy."""

    name: str
    out: Tensor
    shape: tuple[int, ...]
    x: None = None

    def gradients(self, g: Tensor) -> Iterator[tuple[str, Gradient]]:
        yield self.name, Explicit(g.reshape(len(g), *self.shape))

    def energies(self) -> Iterator[tuple[str, Energy]]:
        yield from ()  # it is no layer's, and multiplied with nothing that is known


def _number(value: int, like: Tensor) -> Tensor:
    return torch.tensor(float(value), dtype=torch.float64, device=like.device)


def with_closed_form(network: nn.Module, rows: Mapping[str, LayerRow]) -> set[str]:
    """Return the names of the parameters whose gradients a :class:`Recorder` can compute."""
    layers = {id(p) for layer in network.modules() if _recorded(layer) for p in layer.parameters()}
    return {name for name, parameter in network.named_parameters() if id(parameter) in layers} | set(rows)


_LAYERS = (nn.Linear, nn.LayerNorm, nn.Conv1d, nn.Conv2d, nn.Embedding)


def _recorded(layer: nn.Module) -> bool:
    """Whether a layer has a closed form."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d) and layer.groups > 1:
        return False
    if isinstance(layer, nn.Embedding) and (layer.max_norm or layer.scale_grad_by_freq or layer.sparse):
        return False
    return type(layer) in _LAYERS or is_plain_attention(layer)


def sample_axes(network: nn.Module, run: Callable[[int], object], sizes: Collection[int]) -> dict[nn.Module, int]:
    """Return on which axis of its input each layer has the samples: 0, or 1 where sequences come first.

    Args:
        network: The network.
        run: Runs it on a batch of so many samples.
        sizes: Numbers of samples; two of them tell samples from a sequence that is as long.

    """
    found: dict[nn.Module, set[int]] = {}

    def look(samples: int) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            x, last = inputs[0], isinstance(layer, nn.Linear | nn.LayerNorm)
            enough = x.ndim > (0 if isinstance(layer, nn.Embedding) else 1)
            here = {axis for axis in range(min(x.ndim - 1, 2) if last else 1) if x.shape[axis] == samples and enough}
            found[layer] = found.get(layer, here) & here

        return hook

    for samples in sizes:
        layers = [layer for layer in network.modules() if type(layer) in _LAYERS and _recorded(layer)]
        hooks = [layer.register_forward_pre_hook(look(samples)) for layer in layers]
        try:
            with torch.no_grad():
                run(samples)
        finally:
            for hook in hooks:
                hook.remove()
    return {layer: min(axes) for layer, axes in found.items() if axes}


_Use = _LinearUse | _NormUse | _ConvUse | _EmbeddingUse | _ProjectionUse | _CopyUse


class Recorder:
    """Records every use of the layers of `network` that have a closed form, for a batch of `samples`."""

    def __init__(
        self, network: nn.Module, samples: int, rows: Mapping[str, LayerRow], axes: Mapping[nn.Module, int]
    ) -> None:
        self._network, self._samples, self._rows, self._axes = network, samples, rows, axes
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in network.named_parameters()}
        self._uses: list[_Use] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record within this context."""
        layers = [layer for layer in self._network.modules() if _recorded(layer)]
        attentions = [layer for layer in layers if isinstance(layer, nn.MultiheadAttention)]
        hooks = [layer.register_forward_hook(self._note) for layer in layers if layer not in attentions]
        try:
            with opened(attentions, self._project):
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def given(self, copies: Mapping[str, Tensor]) -> None:
        """Record parameters of which every sample was given a copy, by their names."""
        shapes = {name: tuple(self._network.get_parameter(name).shape) for name in copies}
        self._uses.extend(_CopyUse(name, own, shapes[name]) for name, own in copies.items())

    def _note(self, layer: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> Tensor:
        axis, own = self._axes.get(layer), getattr(layer, "weight", None)
        if axis is None or own is None or inputs[0].shape[axis] != self._samples:
            return out
        bias = getattr(layer, "bias", None)
        first = out.movedim(axis, 0)
        if not first.requires_grad:
            first.requires_grad_()
        x = inputs[0].detach().movedim(axis, 0)
        self._keep(layer, x, first, self._names[own], None if bias is None else self._names[bias])
        # A copy: an operation in place, further on, must not change what is recorded here.
        return first.movedim(0, axis).clone()

    def _keep(self, layer: nn.Module, x: Tensor, out: Tensor, weight: str, bias: str | None) -> None:
        if isinstance(layer, nn.LayerNorm):
            self._uses.append(_NormUse(weight, bias, x, out, layer))
        elif isinstance(layer, nn.Conv1d | nn.Conv2d):
            self._uses.append(_ConvUse(weight, bias, x, out, layer))
        elif isinstance(layer, nn.Embedding):
            self._uses.append(_EmbeddingUse(weight, x, out, layer))
        elif isinstance(layer, nn.Linear):
            own = {n: layer.weight.detach()[:, row.columns] for n, row in self._rows.items() if row.weight == weight}
            self._uses.append(_LinearUse(weight, bias, x, out, own))

    def _project(self, x: Tensor, weight: Tensor, bias: Tensor | None, rows: slice) -> Tensor:
        """Return x (T × n × width) times some rows of a projection, and record it."""
        y = x.transpose(0, 1)
        out = functional.linear(y, weight[rows], None if bias is None else bias[rows])
        if len(y) == self._samples:
            name = None if bias is None else self._names[bias]
            self._uses.append(_ProjectionUse(self._names[weight], name, y.detach(), out, rows, len(weight)))
        return out.transpose(0, 1)

    def gradients(self, total: Tensor) -> dict[str, Gradient]:
        """Return the per-sample gradients of `total`, a sum over samples, by the name of the parameter."""
        if not total.requires_grad or not self._uses:
            return {}
        found = torch.autograd.grad(total, [use.out for use in self._uses], retain_graph=True, allow_unused=True)
        gradients: dict[str, Gradient | None] = {}
        for use, g in zip(self._uses, found, strict=True):
            for name, part in use.gradients(g) if g is not None else ():
                old = gradients.get(name, part)
                gradients[name] = part if name not in gradients else old and joined(old, part)
        return {name: gradient for name, gradient in gradients.items() if gradient is not None}

    def energies(self) -> dict[str, Energy]:
        """Return x² and S of every parameter that was used."""
        energies: dict[str, Energy] = {}
        for use in self._uses:
            for name, part in use.energies():
                energies[name] = energies[name] + part if name in energies else part
        return energies

    def largest_input(self) -> float:
        """Return the largest norm of what went into a layer for one sample."""
        inputs = [use.x for use in self._uses if use.x is not None and use.x.is_floating_point()]
        norms = [x.flatten(1).norm(dim=1).max() for x in inputs]
        return float(torch.stack(norms).max()) if norms else 0.0

r"""The networks of the paper's backbone, for any modalities.

With X^m standardised and zero where it is missing:

    X̂^m = G_m(X^{\m}, P^m)       generator, from the other modalities and the property embedding P^m (1 × d_p)
    Z    = F(X^1, …, X^M)         fusion; a missing X^m is replaced by X̂^m first
    ŷ    = C(Z)                   head
    ŷ    = (1 − s) C(Z) + s L(X)  with a linear map L beside it, to which s = `linear_share` of the output belongs:
    L(X) = b + Σ_{m there} (W_m X^m + Σ_{k there} W_{m,k} X^k)
    Σ^m, μ^m = DE_m(X^m)          decomposition into what is the sample's own and what all samples share (d_p each)
    X̃^m = B_m(Z)                 back-translation, to be compared with Σ^m (d_p)

W_{m,k} is what changes in the weight of X^k where m is there too, so that each set of modalities has weights of its
own. All that exists for one modality alone (also W_{m,·}) hangs below `modality.NAME`; what remains (F, C, b and all
W_m side by side) is shared.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from mbd.formats.model import JointSpec
from mbd.params.learning import JointSettings
from mbd.records import dotless, dotted

Inputs = Mapping[str, Tensor]
Masks = tuple[Tensor, Tensor]
JointShape = JointSettings | JointSpec
"""networks that are to be trained, or that were"""
REACH = 3.0  # standardised inputs are clipped to ±REACH deviations, so that an outlier has no more say than that


class Perceptron(nn.Module):
    """Two linear layers with a rectifier between them, and with dropout where masks are given."""

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs, hidden)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor, masks: Masks | None = None) -> Tensor:
        """Return the output for each row; `masks` multiply the inputs and the hidden units."""
        if masks is None:
            out: Tensor = self.out(torch.relu(self.hidden(x)))
        else:
            out = self.out(torch.relu(self.hidden(x * masks[0])) * masks[1])
        return out


class Pathway(nn.Module):
    """All that exists for one modality alone: its scaling, G_m, P^m, DE_m, B_m and W_{m,·}."""

    mean: Tensor
    scale: Tensor

    def __init__(self, dim: int, dim_of_others: int, outputs: int, shape: JointShape) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))
        d_p = shape.property_dim
        if shape.reconstruction:
            self.generator = Perceptron(dim_of_others + d_p * shape.property_pathway, shape.hidden, dim)
        if shape.property_pathway:
            self.property = nn.Parameter(torch.zeros(1, d_p))
            self.decomposition = Perceptron(dim, shape.hidden, 2 * d_p)
            self.recomposition = nn.Linear(d_p, dim)
            self.back_translation = Perceptron(shape.embedding, shape.hidden, d_p)
        if not shape.fusion:
            self.projection = nn.Linear(dim, shape.embedding)
        if shape.linear_share:
            self.beside = nn.Linear(dim_of_others, outputs, bias=False)

    def decompose(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return Σ^m and μ^m of each row."""
        specific, invariant = self.decomposition(x).chunk(2, dim=1)
        return specific, invariant


class PerModality(nn.Module):
    """Pathways by the name of their modality (any name, also one that a module has as an attribute)."""

    def __init__(self, pathways: Mapping[str, Pathway]) -> None:
        super().__init__()
        self._modules.update({dotless(m): pathway for m, pathway in pathways.items()})

    def __getitem__(self, modality: str) -> Pathway:
        pathway = self._modules[dotless(modality)]
        assert isinstance(pathway, Pathway)  # noqa: S101 -- nothing else is ever put in
        return pathway

    def items(self) -> Iterator[tuple[str, Pathway]]:
        """Yield each modality with its pathway."""
        return ((m, self[m]) for m in map(dotted, self._modules))


class JointNetwork(nn.Module):
    """The whole backbone; `modalities` maps names to dimensions, in the order of the inputs."""

    label_mean: Tensor
    label_scale: Tensor

    def __init__(self, modalities: Mapping[str, int], outputs: int, shape: JointShape) -> None:
        super().__init__()
        self.modalities, self.shape = dict(modalities), shape
        total = sum(modalities.values())
        self.modality = PerModality({m: Pathway(d, total - d, outputs, shape) for m, d in modalities.items()})
        self.owned = {m: (f"modality.{dotless(m)}",) for m in modalities}
        if shape.fusion:
            self.fusion = Perceptron(total, shape.hidden, shape.embedding)
        self.head = nn.Linear(shape.embedding, outputs)
        if shape.linear_share:
            self.linear = nn.Linear(total, outputs)
        self.register_buffer("label_mean", torch.zeros(1))
        self.register_buffer("label_scale", torch.ones(1))

    def in_closed_form(self) -> list[str]:
        """Return the parameters of L: they are computed at once, and no step moves them."""
        if not self.shape.linear_share:
            return []
        owned = [f"modality.{dotless(m)}.beside.weight" for m in self.modalities]
        return ["linear.weight", "linear.bias", *owned]

    def standardise(self, features: Inputs, available: Inputs) -> dict[str, Tensor]:
        """Return the inputs on the scale of the train rows, zero where a modality is missing."""
        return {
            m: (features[m] - path.mean).div_(path.scale).clamp_(-REACH, REACH).masked_fill_(~available[m][:, None], 0)
            for m, path in self.modality.items()
        }

    def generate(self, modality: str, inputs: Inputs) -> Tensor:
        r"""Return X̂^m = G_m(X^{\m}, P^m) for zero-padded standardised inputs."""
        path = self.modality[modality]
        constant = [path.property.expand(len(inputs[modality]), -1)] if self.shape.property_pathway else []
        generated: Tensor = path.generator(_others(modality, inputs, *constant))
        return generated

    def complete(self, inputs: Inputs, available: Inputs, generated: Inputs) -> dict[str, Tensor]:
        """Return the inputs with every missing one replaced by what was generated for it."""
        return {
            m: torch.where(available[m][:, None], x, generated[m]) if m in generated else x for m, x in inputs.items()
        }

    def fuse(self, inputs: Inputs, available: Inputs, masks: Masks | None = None) -> Tensor:
        """Return Z; without the fusion network, the mean of the projections of what is there."""
        if self.shape.fusion:
            z: Tensor = self.fusion(torch.cat(list(inputs.values()), dim=1), masks)
            return z
        projections = torch.stack([self.modality[m].projection(x) for m, x in inputs.items()])
        if self.shape.reconstruction:
            return projections.mean(0)
        there = torch.stack([available[m] for m in inputs]).to(projections.dtype)[:, :, None]
        return (projections * there).sum(0) / there.sum(0)

    def map_linearly(self, inputs: Inputs, available: Inputs) -> Tensor:
        """Return L(X) of zero-padded standardised inputs."""
        out: Tensor = self.linear(torch.cat(list(inputs.values()), dim=1))
        if len(inputs) > 1:
            for m, path in self.modality.items():
                out = out + path.beside(_others(m, inputs)) * available[m][:, None]
        return out

    def answer(self, z: Tensor, inputs: Inputs, available: Inputs) -> Tensor:
        """Return ŷ of Z and of zero-padded standardised inputs, on the scale on which labels are learnt."""
        out: Tensor = self.head(z)
        if share := self.shape.linear_share:
            out = (1 - share) * out + share * self.map_linearly(inputs, available)
        return out

    def embed(self, features: Inputs, available: Inputs) -> Tensor:
        """Return Z of raw features."""
        return self._embed(self.standardise(features, available), available)

    def _embed(self, inputs: Inputs, available: Inputs) -> Tensor:
        """Return Z of standardised inputs; a generator runs only if a row needs it."""
        needed = [m for m in inputs if self.shape.reconstruction and not bool(available[m].all())]
        generated = {m: self.generate(m, inputs) for m in needed}
        return self.fuse(self.complete(inputs, available, generated), available)

    def forward(self, features: Inputs, available: Inputs) -> Tensor:
        """Return scores on the labels' own scale (n × 1), or logits (n × classes), of raw features."""
        inputs = self.standardise(features, available)
        return self.to_labels(self.answer(self._embed(inputs, available), inputs, available))

    def to_labels(self, answer: Tensor) -> Tensor:
        """Return an answer on the labels' own scale."""
        return answer * self.label_scale + self.label_mean


def _others(modality: str, inputs: Inputs, *further: Tensor) -> Tensor:
    """Return all inputs but one, and what is further given, side by side; a matrix of no columns if that is nothing."""
    others = [x for m, x in inputs.items() if m != modality]
    return torch.cat([inputs[modality][:, :0], *others, *further], dim=1)

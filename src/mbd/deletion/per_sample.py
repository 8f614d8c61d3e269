"""The gradients of all samples of a batch by one parameter, in forms that are smaller than one array for each sample.

Sums over samples of |·| or (·)² never need all entries at once: Σ_i |g_i x_iᵀ| = |G|ᵀ|X| where a weight is used once
for a sample; where it is used more often, a few samples are taken at a time.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

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
    shape: tuple[int, ...] | None = None
    """of the parameter, where it is not a matrix"""

    def total(self, form: Form) -> Tensor:
        """Return the sum of g, |g| or g² over the samples."""
        total = self._matrix(form)
        return total if self.shape is None else total.reshape(self.shape)

    def _matrix(self, form: Form) -> Tensor:
        if form == "plain" or self.g.shape[1] == 1:
            return _apply(form, self.g).flatten(0, 1).T @ _apply(form, self.x).flatten(0, 1)
        outputs = max(1, LARGEST // self.x.shape[2])
        if outputs < self.g.shape[2]:  # one sample's matrix is too large to be held
            return torch.cat([Outer(g, self.x)._matrix(form) for g in torch.split(self.g, outputs, dim=2)])
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


@dataclass(frozen=True)
class Scattered:
    """Gradients Σ_t [id_it = v] g_it by the rows v of a table: ids is n × T, g is n × T × width."""

    ids: Tensor
    g: Tensor
    rows: int

    def total(self, form: Form) -> Tensor:
        """Return the sum of g, |g| or g² over the samples."""
        keys, sums = self._by_row()
        return self.g.new_zeros(self.rows, self.g.shape[2]).index_add_(0, keys % self.rows, _apply(form, sums))

    def squared_norms(self) -> Tensor:
        """Return ‖g_i‖² of each sample."""
        keys, sums = self._by_row()
        return self.g.new_zeros(len(self.g)).index_add_(0, keys // self.rows, sums.square().sum(1))

    def _by_row(self) -> tuple[Tensor, Tensor]:
        """Return n·v of every row that a sample uses, and its gradient by that row."""
        samples = torch.arange(len(self.ids), device=self.ids.device)[:, None]
        keys, place = torch.unique(samples * self.rows + self.ids, return_inverse=True)
        sums = self.g.new_zeros(len(keys), self.g.shape[2])
        return keys, sums.index_add_(0, place.flatten(), self.g.flatten(0, 1))


Gradient = Explicit | Outer | Scattered
"""the gradients of all samples of a batch by one parameter"""


def joined(one: Gradient, other: Gradient) -> Gradient | None:
    """Return the gradient by a parameter that is used in two places; None if these are of different kinds."""
    if isinstance(one, Outer) and isinstance(other, Outer):
        return Outer(torch.cat([one.g, other.g], 1), torch.cat([one.x, other.x], 1), one.shape)
    if isinstance(one, Explicit) and isinstance(other, Explicit):
        return Explicit(one.values + other.values)
    if isinstance(one, Scattered) and isinstance(other, Scattered):
        return Scattered(torch.cat([one.ids, other.ids], 1), torch.cat([one.g, other.g], 1), one.rows)
    return None


def _apply(form: Form, values: Tensor) -> Tensor:
    if form == "plain":
        return values
    return values.abs() if form == "absolute" else values.square()

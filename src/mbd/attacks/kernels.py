"""Linear attacks on many layers at once: ridge on kernels, with kind of layer and strength chosen out of fold.

Each matrix of a view (activations of a layer, outputs under masks) gives a kernel k(i, j) = ⟨x_i, x_j⟩ / width of its
standardised columns; ridge on the mean of kernels is ridge on all their columns, in which a wide layer counts no more
than a narrow one. What the attacker itself fed (`input.NAME`) may be in a view as well. For each kind of layer,
for all layers together, and for every strength λ in one batch:

    f(i) = Σ_j k(i, j) α_j,   α = (K + λ I)⁻¹ y

What the rows of a fold H are predicted from the other folds follows from G = (K + λ I)⁻¹ of all fit rows:

    f_H = y_H − (G_HH)⁻¹ (G y)_H

or, where a kind has few columns Φ (K = Φ Φᵀ), from the smaller matrix: f = Φ (Φᵀ Φ + λ I)⁻¹ Φᵀ y.

Several attacks look at the same layers of a model for different targets, and every model is given the same inputs: what
was computed of a kind is kept for the next one, for all targets at once. Rows are ordered once: the fit rows fold by
fold (`AttackContext.by_fold`), then the scored ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from mbd.attacks.context import AttackContext
from mbd.tensors import Array

View = Mapping[str, Array]
INPUTS = "input"
"""the kind of the inputs that the attacker fed to the model"""

_STRENGTHS = (0.3, 3.0, 30.0, 300.0)
_REACH = 5.0
_SIGNIFICANT = 2.0  # standard errors
_CONSTANT = 1e-5  # a column that varies less, as a share of its size, is rounding


@dataclass(frozen=True)
class KernelRidge:
    """Predictions of ridge for the fit rows, out of fold, and for the scored rows (a column for each target)."""

    out_of_fold: Tensor
    scored: Tensor
    kernel: Tensor
    """of all layers together, fit rows × fit rows"""
    across: Tensor
    """the same, scored rows × fit rows"""


ATTRIBUTE = slice(0, 1)
"""of the targets: the private attribute, centred, so that 0 lies between both values however common they are"""
OWN = slice(1, None)
"""of the targets: the part of m* that the retained modalities do not predict"""


@torch.inference_mode()
def fit_kernels(view: View, wanted: slice, weights: Tensor, attack_context: AttackContext) -> KernelRidge | None:
    """Fit some targets of the fit rows, whose errors count by `weights`; None if nothing varies in the view."""
    kinds = _kinds(view, attack_context)
    if not kinds:
        return None
    predicted, targets = [kind.out_of_fold(wanted) for kind in kinds.values()], _targets(attack_context)[:, wanted]
    losses = torch.stack([((one - targets) ** 2).sum(-1) * weights for one in predicted])
    chosen, strength = _choose(losses, list(kinds))
    kind, whole = list(kinds.values())[chosen], kinds[list(kinds)[-1]]
    return KernelRidge(predicted[chosen][strength], kind.predict(targets, strength), whole.kernel, whole.across)


@lru_cache(maxsize=1)
def _targets(attack_context: AttackContext) -> Tensor:
    """Return everything that is fitted, of the fit rows by fold (n × t)."""
    truth = attack_context.attribute.values[attack_context.by_fold]
    both = np.column_stack([2 * (truth - truth.mean()), attack_context.own[attack_context.by_fold]])
    return torch.from_numpy(both).float()


@dataclass(frozen=True, eq=False)
class _Kind:
    """The kernel of one kind of layer, or of all."""

    layers: int
    """how many layers vary"""
    whole: Tensor
    """all rows × fit rows"""
    columns: Tensor | None
    """all rows × columns, if these are few: their products are the kernel"""
    attack_context: AttackContext
    _kept: dict[int, Tensor] = field(default_factory=dict, repr=False)

    @property
    def kernel(self) -> Tensor:
        """Of the fit rows."""
        return self.whole[: self.whole.shape[1]]

    @property
    def across(self) -> Tensor:
        """Of the scored rows with the fit rows."""
        return self.whole[self.whole.shape[1] :]

    @cached_property
    def inverses(self) -> Tensor:
        """G of the fit rows for each strength (strengths × n × n)."""
        return torch.cholesky_inverse(_factors(self.kernel))

    @cached_property
    def factors(self) -> list[Tensor]:
        """The factor of G_HH of each fold H for each strength."""
        return [torch.linalg.cholesky(self.inverses[:, held, held]) for held in self.attack_context.held_out]

    def predict(self, targets: Tensor, strength: int) -> Tensor:
        """Return the predictions for the scored rows (n × t), fitted on all fit rows with one of the strengths."""
        centre, n = targets.mean(0), len(targets)
        if self.columns is not None:
            columns = self.columns[:n]
            solved = torch.cholesky_solve(columns.T @ (targets - centre), _factors(columns.T @ columns)[strength])
            return self.columns[n:] @ solved + centre
        return self.across @ (self.inverses[strength] @ (targets - centre)) + centre

    def out_of_fold(self, wanted: slice) -> Tensor:
        """Return the prediction of some targets for each fit row from the other folds (strengths × n × t)."""
        if wanted.start not in self._kept:
            left_out = self._from_inverses if self.columns is None else self._from_columns
            self._kept[wanted.start] = torch.cat(list(left_out(_targets(self.attack_context)[:, wanted])), dim=1)
        return self._kept[wanted.start]

    def _from_inverses(self, targets: Tensor) -> Iterator[Tensor]:
        """Yield the prediction for each fold."""
        solved = self.inverses @ torch.cat([targets, torch.ones(len(targets), 1)], dim=1)
        solved, of_ones = solved[..., :-1], solved[..., -1:]
        for held, factor in zip(self.attack_context.held_out, self.factors, strict=True):
            centre = (targets.sum(0) - targets[held].sum(0)) / (len(targets) - len(targets[held]))
            yield targets[held] - torch.cholesky_solve(solved[:, held] - of_ones[:, held] * centre, factor)

    def _from_columns(self, targets: Tensor) -> Iterator[Tensor]:
        assert self.columns is not None  # noqa: S101 -- only then
        columns, held_out = self.columns[: len(targets)], self.attack_context.held_out
        everything = torch.cat([columns, targets, torch.ones(len(targets), 1)], dim=1)
        products = torch.stack([everything[held].T @ everything[held] for held in held_out])
        solved, centres = _solved(products.sum(0) - products, columns.shape[1])
        for place, held in enumerate(held_out):
            yield columns[held] @ solved[:, place] + centres[place]


def _solved(products: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return (Φᵀ Φ + λ I)⁻¹ Φᵀ (y − ȳ) for each strength, and ȳ, of the products of (Φ, y, 1); of several such."""
    centre = products[..., -1:, width:-1] / products[..., -1:, -1:]
    right = products[..., :width, width:-1] - products[..., :width, -1:] * centre
    right = right.expand(len(_STRENGTHS), *right.shape)
    return torch.cholesky_solve(right, _factors(products[..., :width, :width])), centre


def _factors(square: Tensor) -> Tensor:
    """Return the Cholesky factor of a matrix plus λ I for each strength."""
    systems = square.repeat(len(_STRENGTHS), *[1] * square.ndim)
    systems.diagonal(dim1=-2, dim2=-1).add_(torch.tensor(_STRENGTHS).view(-1, *[1] * (square.ndim - 1)))
    factors: Tensor = torch.linalg.cholesky(systems)
    return factors


def _choose(losses: Tensor, kinds: list[str]) -> tuple[int, int]:
    """Return the kind and the strength of least loss (kinds × strengths × n).

    The inputs that the attacker knows are chosen unless another kind is significantly better, so that two models that
    add nothing to them do not differ by noise.
    """
    means = losses.mean(-1)
    best = divmod(int(means.argmin()), len(_STRENGTHS))
    if INPUTS in kinds:
        place = kinds.index(INPUTS)
        plain = place, int(means[place].argmin())
        if not significantly_less(losses[best], losses[plain]):
            return plain
    return best


def significantly_less(losses: Tensor, than: Tensor) -> Tensor:
    """Whether losses are below others of the same rows (… × n) by more than their difference varies by chance."""
    gain = than - losses
    significant: Tensor = gain.mean(-1) > _SIGNIFICANT * gain.std(-1) / gain.shape[-1] ** 0.5
    return significant


def _kinds(view: View, attack_context: AttackContext) -> dict[str, _Kind]:
    """Return each kind of layer, and all layers together as the last; empty if nothing varies."""
    matrices: dict[str, list[Array]] = {}
    for name, matrix in view.items():
        matrices.setdefault(_kind(name), []).append(matrix)
    all_kinds = {kind: _of_kind(_Matrices(found), attack_context) for kind, found in matrices.items()}
    kinds = {name: kind for name, kind in all_kinds.items() if kind is not None}
    if len(kinds) > 1:
        layers = sum(kind.layers for kind in kinds.values())
        whole = torch.zeros_like(next(iter(kinds.values())).whole)
        for kind in kinds.values():
            whole.add_(kind.whole, alpha=kind.layers / layers)
        kinds["all layers"] = _Kind(layers, whole, None, attack_context)
    return kinds


class _Matrices(tuple[Array, ...]):
    """Matrices that equal others if they are the same objects."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Matrices) and [*map(id, self)] == [*map(id, other)]


@lru_cache(maxsize=24)  # the inputs, and all kinds of layers of a model with m* fed and not fed
def _of_kind(matrices: _Matrices, attack_context: AttackContext) -> _Kind | None:
    """Return the kernel of layers of one kind; None if nothing varies in them."""
    layers = [x for matrix in matrices if (x := _standardised(matrix, attack_context)) is not None]
    if not layers:
        return None
    n, shares = len(attack_context.fit), [1 / (x.shape[1] * len(layers)) for x in layers]
    whole = torch.zeros(len(layers[0]), n)
    for x, share in zip(layers, shares, strict=True):
        whole.addmm_(x, x[:n].T, alpha=share)
    narrow = 2 * sum(x.shape[1] for x in layers) < n
    columns = torch.cat([x * share**0.5 for x, share in zip(layers, shares, strict=True)], dim=1) if narrow else None
    return _Kind(len(layers), whole, columns, attack_context)


def _standardised(matrix: Array, attack_context: AttackContext) -> Tensor | None:
    """Return the columns of a matrix that vary, on the scale of the fit rows; None if none does."""
    x = torch.from_numpy(np.asarray(matrix, np.float32)).flatten(1)
    x = x.index_select(0, torch.from_numpy(np.concatenate([attack_context.by_fold, attack_context.score])))
    fitted = x[: len(attack_context.fit)]
    mean = fitted.mean(0)
    x.sub_(mean)
    deviation = (fitted.square().sum(0) / (len(fitted) - 1)).sqrt_()  # torch.std takes three times as long
    varies = deviation > _CONSTANT * (mean.abs() + deviation)
    if not varies.any():
        return None
    if not varies.all():
        x, deviation = x[:, varies], deviation[varies]
    return x.div_(deviation).clamp_(-_REACH, _REACH)


def _kind(name: str) -> str:
    """Return the kind of a layer: `modality.audio.generator.hidden` is a generator's, `fusion.hidden` F's."""
    parts = name.split(".")
    return parts[2] if parts[0] == "modality" and len(parts) > 2 else parts[0]

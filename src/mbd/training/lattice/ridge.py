"""Ridge from exact Gram matrices: any fold, any strengths, no second look at the rows.

With features x and targets y on the grid and Z = [1, x, y], every entry of G = ZᵀZ is an exact float64 sum, so G does
not depend on the order of rows, on threads or on blocks. Leaving a fold out is a difference of two such matrices, and
the matrix of some columns is a part of that of all.
For strengths λ (one for each block of columns):

    w = (XᵀX + n·diag(λ))⁻¹ Xᵀy  on centred X and y,   offset = ȳ − x̄ w
    Σ (y − x w − offset)² over a fold = Σ diag(vᵀ G v),   v = [offset, w, −1],   G that of the fold

For all tags the sums are made in one pass, by the set of modalities that rows have (their pattern) and by fold. With G
summed over the rows of a pattern P and a fold, the matrix of a tag S is

    G_S = Σ_{P ⊇ S} G_P[1, S, y]

which is bit for bit the matrix that the rows of the tag alone give, with or without other modalities.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg.lapack import dposv

from mbd.blocks import Columns, Wide, in_blocks
from mbd.errors import DataError
from mbd.formats.model import Tag
from mbd.randomness import stream
from mbd.tensors import Array

Strengths = tuple[float, ...]
"""log₁₀ of λ, for each block"""
Fit = tuple[Array, Array]
"""weights (d × t) and offset (t)"""
System = tuple[float, Array, Array, Array, Array]
"""n, x̄, ȳ, and of centred x and y: XᵀX and Xᵀy"""

_ALONE = tuple(np.arange(-2.5, 2.01, 0.5).tolist())
_SHIFTS = (-1.0, -0.5, 0.0, 0.5)
_MOVES = (0.5, -0.5, 1.0)
_STRONGEST = 3.5
_WORTH_A_MOVE = 0.9995
_ROUNDS = 2


def assign_folds(groups: Array, folds: int, seed: int) -> Array:
    """Return a fold for each row: whole groups in random order, each to the fold that has the fewest rows so far."""
    names, member = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise DataError(
            "the train split has a single group, and out-of-fold errors need at least two",
            key="train",
            value=names[0],
            hint="give groups (speakers or videos), or set features.source.group_pattern=null",
        )
    counts, sizes = np.bincount(member), np.zeros(folds, np.int64)
    fold_of = np.zeros(len(names), np.int64)
    for group in stream(seed, "lattice", "folds").permutation(len(names)):
        fold_of[group] = sizes.argmin()
        sizes[fold_of[group]] += counts[group]
    assigned: Array = fold_of[member]
    return assigned


def fold_numbers(folds: Array) -> Array:
    """Return the folds that occur, in order."""
    return np.flatnonzero(np.bincount(folds))


class FoldedRidge:
    """Ridge of t targets on d features, whose columns come in `blocks`, from the Gram matrix G of each fold."""

    def __init__(self, grams: Sequence[Array], blocks: tuple[int, ...]) -> None:
        self.blocks, self._grams = blocks, grams
        self._gram: Array = np.sum(grams, axis=0)
        self._tried: dict[Strengths, tuple[float, list[Fit]]] = {}

    @classmethod
    def of(cls, features: Wide, targets: Array, folds: Array, blocks: tuple[int, ...]) -> "FoldedRidge":
        """Return the ridge of `targets` (n × t) on `features` (n × d)."""
        return cls(grams(features, targets, [folds == fold for fold in fold_numbers(folds)]), blocks)

    def leading(self, columns: int) -> "FoldedRidge":
        """Return the ridge on the first `columns` of each block, which takes a fraction of the time."""
        blocks = tuple(min(size, columns) for size in self.blocks)
        if blocks == self.blocks:
            return self
        inside = np.concatenate([np.arange(size) < columns for size in self.blocks])
        return FoldedRidge([with_columns(gram, inside) for gram in self._grams], blocks)

    def block(self, number: int) -> "FoldedRidge":
        """Return the ridge on one block alone."""
        inside = np.repeat(np.arange(len(self.blocks)) == number, self.blocks)
        return FoldedRidge([with_columns(gram, inside) for gram in self._grams], (self.blocks[number],))

    def fit(self, strengths: Strengths) -> Fit:
        """Return weights and offset from all rows."""
        return self._solve(self._centre(self._gram), strengths)

    def left_out(self, strengths: Strengths) -> list[Fit]:
        """Return, for each fold in order, the fit that left it out."""
        return self._try(strengths)[1]

    def error(self, strengths: Strengths) -> float:
        """Return the mean squared out-of-fold error."""
        return self._try(strengths)[0]

    def best_alone(self, choices: tuple[float, ...] = _ALONE) -> Strengths:
        """Return the best strength of a single block (or one for all)."""
        return min(((choice,) * len(self.blocks) for choice in choices), key=self.error)

    def best_from(self, start: Strengths) -> Strengths:
        """Return good strengths near `start`: a common shift first, then one block after the other."""
        best = min((tuple(s + shift for s in start) for shift in _SHIFTS), key=self.error)
        for _ in range(_ROUNDS):
            before = best
            for place in range(len(best)):
                for move in _MOVES:
                    moved = (*best[:place], best[place] + move, *best[place + 1 :])
                    if max(moved) <= _STRONGEST and self.error(moved) < _WORTH_A_MOVE * self.error(best):
                        best = moved
                        break
            if best == before:
                break
        return best

    def _try(self, strengths: Strengths) -> tuple[float, list[Fit]]:
        if strengths not in self._tried:
            fits = [self._solve(system, strengths) for system in self._others]
            squares = sum(_squares(gram, fit) for gram, fit in zip(self._grams, fits, strict=True))
            targets = len(self._gram) - 1 - sum(self.blocks)
            self._tried[strengths] = squares / (self._gram[0, 0] * targets), fits
        return self._tried[strengths]

    @cached_property
    def _others(self) -> list[System]:
        """The systems that leave one fold out, in order."""
        return [self._centre(self._gram - gram) for gram in self._grams]

    def _centre(self, gram: Array) -> System:
        n, width = gram[0, 0], 1 + sum(self.blocks)
        means, target_means = gram[0, 1:width] / n, gram[0, width:] / n
        left = gram[1:width, 1:width] - np.outer(means, gram[0, 1:width])
        right = gram[1:width, width:] - np.outer(gram[0, 1:width], target_means)
        return n, means, target_means, left, right

    def _solve(self, system: System, strengths: Strengths) -> Fit:
        n, means, target_means, left, right = system
        lower = left.T.copy(order="F")  # symmetric; LAPACK overwrites it
        lower[np.diag_indices(len(lower))] += n * np.repeat(10.0 ** np.array(strengths), self.blocks)
        _, weights, failed = dposv(lower, right, lower=1, overwrite_a=1)
        if failed:
            raise np.linalg.LinAlgError("the Gram matrix is not positive definite")
        return weights, target_means - means @ weights


def grams(features: Wide, targets: Array, groups: Sequence[Array]) -> list[Array]:
    """Return ZᵀZ of each group of rows (a mask)."""
    return [_gram(features, targets, np.flatnonzero(rows)) for rows in groups]


def with_columns(gram: Array, inside: Array) -> Array:
    """Return G with those of the features (a mask) that are inside."""
    kept = np.flatnonzero(np.pad(inside, (1, len(gram) - 1 - inside.size), constant_values=True))
    part: Array = gram[np.ix_(kept, kept)]
    return part


def _gram(features: Wide, targets: Array, rows: Array) -> Array:
    """Return ZᵀZ of some rows."""
    width = 1 + features.shape[1] + targets.shape[1]
    gram = np.zeros((width, width))
    for own in in_blocks(rows, width):
        z = np.hstack([np.ones((len(own), 1)), features[own], targets[own]])
        gram += z.T @ z
    return gram


def _squares(gram: Array, fit: Fit) -> float:
    """Return Σ (y − x w − offset)² over the rows of `gram` and all targets."""
    weights, offset = fit
    v = np.vstack([offset, weights, -np.eye(len(offset))])
    return float((v * (gram @ v)).sum())


def out_of_fold(features: Wide, folds: Array, fits: Sequence[Fit]) -> Array:
    """Return for each row the prediction of the fit that left its fold out."""
    predicted = np.empty((len(folds), fits[0][1].size))
    for fold, (weights, offset) in zip(fold_numbers(folds), fits, strict=True):
        for own in in_blocks(np.flatnonzero(folds == fold), features.shape[1]):
            predicted[own] = features[own] @ weights + offset
    return predicted


_MOST_BYTES = 1 << 28
_MOST_MODALITIES = 62  # bits of a pattern


@dataclass(frozen=True)
class PatternSums:
    """G of each pattern and fold."""

    grams: Mapping[Tag, Mapping[int, Array]]
    widths: Mapping[str, int]
    """coordinates of each modality"""

    @classmethod
    def of(
        cls,
        points: Mapping[str, Array],
        available: Mapping[str, Array],
        targets: Array,
        folds: Array,
        tags: Collection[Tag],
    ) -> "PatternSums | None":
        """Return the sums for these tags; None if summing for each tag alone takes less work, or less memory."""
        widths = {m: x.shape[1] for m, x in points.items()}
        rows = {
            pattern: own
            for pattern, own in _patterns({m: available[m] for m in sorted(points)}).items()
            if any(set(tag) <= set(pattern) for tag in tags)
        }

        def size(modalities: Tag) -> int:
            width: int = 1 + sum(widths[m] for m in modalities) + targets.shape[1]
            return width * width

        once = sum(len(own) * size(pattern) for pattern, own in rows.items())
        each = sum(
            size(tag) * sum(len(own) for pattern, own in rows.items() if set(tag) <= set(pattern)) for tag in tags
        )
        held = {pattern: fold_numbers(folds[own]).tolist() for pattern, own in rows.items()}
        memory = 8 * sum(len(held[pattern]) * size(pattern) for pattern in rows)
        if not rows or once > each or memory > _MOST_BYTES:
            return None
        sums = {}
        for pattern, own in rows.items():
            columns = Columns(tuple(points[m] for m in pattern), own)
            groups = [folds[own] == fold for fold in held[pattern]]
            sums[pattern] = dict(zip(held[pattern], grams(columns, targets[own], groups), strict=True))
        return cls(sums, widths)

    def of_tag(self, tag: Tag) -> list[Array]:
        """Return G of the rows that have a tag, for each fold that has such rows, in order."""
        sums: dict[int, Array] = {}
        for pattern, by_fold in self.grams.items():
            if set(tag) <= set(pattern):
                inside = np.repeat([m in tag for m in pattern], [self.widths[m] for m in pattern])
                for fold, gram in by_fold.items():
                    own = with_columns(gram, inside)
                    sums[fold] = sums[fold] + own if fold in sums else own
        return [sums[fold] for fold in sorted(sums)]


def _patterns(available: Mapping[str, Array]) -> dict[Tag, Array]:
    """Return the rows of each set of modalities that rows have; nothing if there are too many modalities."""
    if len(available) > _MOST_MODALITIES:
        return {}
    code = sum((np.asarray(bits, np.int64) << place) for place, bits in enumerate(available.values()))
    return {
        tuple(m for place, m in enumerate(available) if pattern >> place & 1): np.flatnonzero(code == pattern)
        for pattern in np.unique(code).tolist()
    }

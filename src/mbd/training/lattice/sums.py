"""Sums for all tags in one pass: by the set of modalities that rows have (their pattern), and by fold.

With Z = [1, p, y] of all coordinates that rows of a pattern have, and G = ZᵀZ summed over the rows of a pattern P and a
fold, the matrix of a tag S is

    G_S = Σ_{P ⊇ S} G_P[1, S, y]

Sums are exact, so it is bit for bit the matrix that the rows of the tag alone give, with or without other modalities.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from mbd.blocks import Columns
from mbd.formats.lattice import Tag
from mbd.tensors import Array
from mbd.training.lattice.folds import fold_numbers
from mbd.training.lattice.ridge import grams, with_columns

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

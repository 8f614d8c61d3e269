"""Rows in blocks: what is wide is read or computed for some thousand rows at a time, and kept no longer than needed.

What is kept for each row is narrow: targets, folds, predictions.

How a product of floats is rounded depends on how many rows it has, so the number of rows of a block depends on its
columns alone: the same rows are rounded in the same way each time.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mbd.tensors import Array, release, scratch

_NUMBERS = 1 << 22
"""of a block: 32 MiB in float64"""
_FEWEST_ROWS = 1024
"""of a block"""


class Wide(Protocol):
    """Rows of many columns: an array, or what computes some rows of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""

    def __getitem__(self, rows: Array | slice, /) -> Array:
        """Return the rows at these positions."""


def in_blocks(rows: Array, columns: int) -> Iterator[Array]:
    """Yield positions of rows, as many at a time as make a block of so many columns."""
    size = _rows_of(columns)
    return (rows[at : at + size] for at in range(0, len(rows), size))


def spans(rows: int, columns: int) -> Iterator[slice]:
    """Yield all rows in their order, as many at a time as make a block of so many columns."""
    size = _rows_of(columns)
    return (slice(at, at + size) for at in range(0, rows, size))


def _rows_of(columns: int) -> int:
    return max(_NUMBERS // max(columns, 1), _FEWEST_ROWS)


def take_rows(array: Array, rows: Array) -> Array:
    """Return the rows at some positions (or of a mask); many of them lie in a file (:func:`mbd.tensors.scratch`)."""
    return _copy_rows(array, np.flatnonzero(rows) if rows.dtype == bool else rows, array.dtype)


def convert(array: Array, dtype: npt.DTypeLike) -> Array:
    """Return an array as another type: itself if it is of it, else a copy, which lies in a file if it is large."""
    return array if array.dtype == dtype else _copy_rows(array, np.arange(len(array)), dtype)


def _copy_rows(array: Array, rows: Array, dtype: npt.DTypeLike) -> Array:
    copied = scratch((len(rows), *array.shape[1:]), dtype)
    start, scattered = 0, len(rows) and np.ptp(rows) >= len(rows)
    # A page of a file is mapped with its neighbours, so scattered rows take far more memory than they have bytes.
    for own in in_blocks(rows, _NUMBERS if scattered else math.prod(array.shape[1:])):
        copied[start : start + len(own)] = array[own]
        start += len(own)
        release(array)
        release(copied)
    return copied


@dataclass(frozen=True)
class Columns:
    """Several arrays side by side in float64, of the rows at some positions; the arrays may lie in files."""

    parts: tuple[Array, ...]
    rows: Array

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many columns each of the arrays has."""
        return tuple(part.shape[1] for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns."""
        return len(self.rows), sum(self.blocks)

    def cut(self, columns: slice) -> "Columns":
        """Return the same with some columns of each array."""
        return Columns(tuple(part[:, columns] for part in self.parts), self.rows)

    def __getitem__(self, rows: Array | slice) -> Array:
        """Return the rows at these positions."""
        at, ends = self.rows[rows], np.cumsum((0, *self.blocks))
        values = np.empty((len(at), ends[-1]))
        for part, start, end in zip(self.parts, ends, ends[1:], strict=False):
            values[:, start:end] = part[at]
            release(part)
        return values


def row_by_row(matrix: Wide, of: Callable[[Array], Array] = lambda x: x) -> Array:
    """Return the sum over rows of what `of` makes of a block, added in their order: blocks change no bit of it."""
    total: Array = np.zeros(matrix.shape[1])
    for rows in spans(*matrix.shape):
        values = of(matrix[rows])
        if rows.start:
            values = values.copy() if isinstance(matrix, np.ndarray) else values  # an array's own rows stay as they are
            values[0] += total
        total = values.sum(0)
    return total


def moments(matrix: Wide) -> tuple[Array, Array]:
    """Return mean and deviation of each column."""
    mean = row_by_row(matrix) / matrix.shape[0]
    return mean, np.sqrt(row_by_row(matrix, lambda x: np.square(x - mean)) / matrix.shape[0])

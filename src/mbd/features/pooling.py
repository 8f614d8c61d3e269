"""Sequences to vectors: the mean over the frames that are really there.

For row i with frames x_{i,1..T} and span [b_i, e_i):   v_i = Σ_{b ≤ t < e} x_{i,t} / (e_i − b_i)

Files pad sequences with all-zero frames, mostly behind, some in front. Without lengths the span is what lies between
the padding. With a length L it is the first L frames, or the last L where only they hold anything. Some lengths were
once counted up to the first all-zero frame: where such a length leaves out every frame that holds something, the span
is again what lies between the padding.
"""

from dataclasses import dataclass

import numpy as np

from mbd.features.check import all_finite
from mbd.tensors import Array

_CHUNK_BYTES = 1 << 24


@dataclass(frozen=True)
class Pooled:
    """A vector for each row, and what was corrected or left out."""

    vectors: Array
    available: Array
    """rows with at least one frame that holds anything"""
    corrected: int
    """values that were NaN or infinite and count as 0"""
    left_out: int
    """rows with frames beyond the length given for them"""


def pool(sequences: Array, lengths: Array | None = None) -> Pooled:
    """Return the mean frame of each row of `sequences` (n × T × d)."""
    rows, frames, dim = sequences.shape
    exact = np.dtype(np.float32 if sequences.dtype.kind == "f" and sequences.dtype.itemsize <= 4 else np.float64)
    step = max(1, _CHUNK_BYTES // max(1, frames * dim * exact.itemsize))
    vectors, available = np.zeros((rows, dim), np.float32), np.zeros(rows, bool)
    corrected = left_out = 0
    for begin in range(0, rows, step):
        here = slice(begin, begin + step)
        part = _pool_chunk(sequences[here].astype(exact), None if lengths is None else lengths[here])
        vectors[here], available[here] = part.vectors, part.available
        corrected, left_out = corrected + part.corrected, left_out + part.left_out
    return Pooled(vectors, available, corrected, left_out)


def _pool_chunk(x: Array, lengths: Array | None) -> Pooled:
    corrected = 0
    if not all_finite(x):
        wrong = ~np.isfinite(x)
        corrected = int(wrong.sum())
        x[wrong] = 0
    filled = (x != 0).any(axis=2)
    begin, end = _extent(filled)
    left_out = np.zeros(len(x), bool)
    if lengths is not None:
        begin, end, left_out = _span(begin, end, lengths, x.shape[1])
    frame = np.arange(x.shape[1])
    inside = (begin[:, None] <= frame) & (frame < end[:, None])
    x[~inside & filled] = 0
    # A sum over frames adds whole frames one after the other, so it has the same bits on every machine.
    with np.errstate(over="ignore"):
        mean = (x.sum(axis=1, dtype=np.float64) / np.maximum(end - begin, 1)[:, None]).astype(np.float32)
    return Pooled(mean, (filled & inside).any(axis=1), corrected, int(left_out.sum()))


def _extent(filled: Array) -> tuple[Array, Array]:
    """Return where the first frame that holds anything begins and the last one ends; 0 and 0 if there is none."""
    frames = filled.shape[1]
    if not frames:
        return np.zeros(len(filled), np.int64), np.zeros(len(filled), np.int64)
    end = np.where(filled.any(axis=1), frames - filled[:, ::-1].argmax(axis=1), 0)
    return filled.argmax(axis=1), end


def _span(begin: Array, end: Array, lengths: Array, frames: int) -> tuple[Array, Array, Array]:
    """Return the span of each row by its length, and the rows that have frames outside it."""
    in_front = (end > lengths) & (begin >= frames - lengths)
    misses_all = (begin >= lengths) & (end > begin) & ~in_front
    first = np.where(in_front, frames - lengths, 0)
    span_begin, span_end = np.where(misses_all, begin, first), np.where(misses_all, end, first + lengths)
    return span_begin, span_end, misses_all | (end > span_end)

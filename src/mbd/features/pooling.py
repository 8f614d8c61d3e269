"""Sequences to vectors: the mean over the frames that are really there; or these frames, where they are kept.

For row i with frames x_{i,1..T} and span [b_i, e_i):   v_i = Σ_{b ≤ t < e} x_{i,t} / (e_i − b_i)

Files pad sequences with all-zero frames, mostly behind, some in front. Without lengths the span is what lies between
the padding. With a length L it is the first L frames, or the last L where only they hold anything. Some lengths were
once counted up to the first all-zero frame: where such a length leaves out every frame that holds something, the span
is again what lies between the padding.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from mbd.blocks import in_blocks
from mbd.features.check import all_finite
from mbd.features.rows import Rows, kind_of, within
from mbd.tensors import Array, release

_CHUNK_BYTES = 1 << 24
_RESIDUES = 256


@dataclass(frozen=True)
class Frames:
    """What became of the frames of each row: a vector, or a sequence; and what was corrected or left out."""

    features: Array
    available: Array
    """rows with at least one frame that holds anything"""
    corrected: int
    """values that were NaN or infinite and count as 0"""
    left_out: int
    """rows with frames beyond the length given for them"""
    lengths: Array | None = None
    """of sequences"""


def pool(sequences: Array, lengths: Array | None = None) -> Frames:
    """Return the mean frame of each row of `sequences` (n × T × d)."""
    rows, frames, dim = sequences.shape
    exact = np.dtype(np.float32 if sequences.dtype.kind == "f" and sequences.dtype.itemsize <= 4 else np.float64)
    step = max(1, _CHUNK_BYTES // max(1, frames * dim * exact.itemsize))
    vectors, available = np.zeros((rows, dim), np.float32), np.zeros(rows, bool)
    corrected = left_out = 0
    for begin in range(0, rows, step):
        here = slice(begin, begin + step)
        part = _pool_chunk(sequences[here].astype(exact), None if lengths is None else lengths[here])
        vectors[here], available[here] = part.features, part.available
        corrected, left_out = corrected + part.corrected, left_out + part.left_out
    return Frames(vectors, available, corrected, left_out)


def _pool_chunk(x: Array, lengths: Array | None) -> Frames:
    corrected, filled, begin, end, left_out = _spans(x, lengths)
    frame = np.arange(x.shape[1])
    inside = (begin[:, None] <= frame) & (frame < end[:, None])
    x[~inside & filled] = 0
    # A sum over frames adds whole frames one after the other, so it has the same bits on every machine.
    with np.errstate(over="ignore"):
        mean = (x.sum(axis=1, dtype=np.float64) / np.maximum(end - begin, 1)[:, None]).astype(np.float32)
    available = np.any(filled & inside, axis=1)
    return Frames(mean, available, corrected, left_out)


def _spans(x: Array, lengths: Array | None) -> tuple[int, Array, Array, Array, int]:
    """Set what is no number to 0; return how many those were, the frames with any content, the spans, `left_out`."""
    corrected = 0
    if not all_finite(x):
        wrong = ~np.isfinite(x)
        corrected = int(wrong.sum())
        x[wrong] = 0
    filled = (x != 0).any(axis=2)
    frames = x.shape[1]
    # Where the first frame that holds anything begins and the last one ends; 0 and 0 if there is none.
    begin = filled.argmax(axis=1) if frames else np.zeros(len(x), np.int64)
    end = np.where(filled.any(axis=1), frames - filled[:, ::-1].argmax(axis=1), 0) if frames else begin
    if lengths is None:
        return corrected, filled, begin, end, 0
    in_front = (end > lengths) & (begin >= frames - lengths)
    misses_all = (begin >= lengths) & (end > begin) & ~in_front
    first = np.where(in_front, frames - lengths, 0)
    span_begin, span_end = np.where(misses_all, begin, first), np.where(misses_all, end, first + lengths)
    return corrected, filled, span_begin, span_end, int((misses_all | (end > span_end)).sum())


def keep(sequences: Array, lengths: Array | None = None) -> Frames:
    """Return the frames of each row of `sequences` (n × T × d) that :func:`pool` would take the mean of.

    They are there from the first frame on, and zero behind their length.
    """
    x = np.array(sequences, sequences.dtype if sequences.dtype in (np.float16, np.float32) else np.float32)
    corrected, filled, begin, end, left_out = _spans(x, lengths)
    frame = np.arange(x.shape[1])
    if begin.any():
        x = np.take_along_axis(x, np.minimum(frame + begin[:, None], x.shape[1] - 1)[:, :, None], axis=1)
    inside = within(end - begin, x.shape[1])
    x[~inside] = 0
    available = np.any(filled & (begin[:, None] <= frame) & (frame < end[:, None]), axis=1)
    return Frames(x, available, corrected, left_out, end - begin)


def as_vectors(rows: Rows) -> Rows:
    """Return the rows with a vector for each modality, for whatever needs one; vectors stay as they are.

    Of a sequence: mean and deviation over its frames. Of an image: each channel's mean in each of up to 8 × 8 parts. Of
    token ids: the share of each of 256 residues of the ids.
    """
    features = {
        m: x if kind_of(x) == "vector" else _in_blocks(x, rows.lengths.get(m)) for m, x in rows.features.items()
    }
    return replace(rows, features=features, lengths={})


def _in_blocks(array: Array, lengths: Array | None) -> Array:
    parts = []
    for own in in_blocks(np.arange(len(array)), math.prod(array.shape[1:])):
        parts.append(_vectors(array[own], None if lengths is None else lengths[own]))
        release(array)
    return np.concatenate(parts) if parts else _vectors(array, lengths)


def _vectors(array: Array, lengths: Array | None) -> Array:
    kind, n = kind_of(array), len(array)
    if kind == "image":
        rows, columns = (np.arange(min(8, size)) * size // min(8, size) for size in array.shape[2:])
        sums = np.add.reduceat(np.add.reduceat(array, rows, axis=2, dtype=np.float32), columns, axis=3)
        areas = np.outer(np.diff([*rows, array.shape[2]]), np.diff([*columns, array.shape[3]]))
        means: Array = (sums / areas).reshape(n, -1).astype(np.float32)
        return means
    lengths = np.full(n, array.shape[1]) if lengths is None else lengths
    inside, count = within(lengths, array.shape[1]), np.maximum(lengths, 1)[:, None].astype(np.float32)
    if kind == "tokens":
        places = (np.arange(n)[:, None] * _RESIDUES + array % _RESIDUES)[inside]
        return (np.bincount(places, minlength=n * _RESIDUES).reshape(n, -1) / count).astype(np.float32)
    mean = np.einsum("ntd,nt->nd", array, inside, dtype=np.float64) / count
    squares = np.einsum("ntd,ntd,nt->nd", array, array, inside, dtype=np.float64) / count
    return np.hstack([mean, np.sqrt(np.maximum(squares - mean**2, 0))]).astype(np.float32)

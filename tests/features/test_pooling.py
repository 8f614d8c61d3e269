"""Pooling: the mean over the frames that are really there."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.features import pooling
from mbd.features.pooling import as_vectors, pool
from mbd.features.rows import Rows

A, B, ZERO = [1.0, 2.0], [3.0, -4.0], [0.0, 0.0]
MEAN = [2.0, -1.0]


def one(*frames: list[float], length: int | None = None) -> tuple[list[float], bool]:
    pooled = pool(np.array([frames]), None if length is None else np.array([length]))
    return pooled.features[0].tolist(), bool(pooled.available[0])


@pytest.mark.parametrize("frames", [(A, B, ZERO, ZERO), (ZERO, ZERO, A, B), (A, B)])
def test_padding_does_not_count(frames: tuple[list[float], ...]) -> None:
    assert one(*frames) == (MEAN, True)
    assert one(*frames, length=2) == (MEAN, True)


def test_an_empty_frame_within_counts() -> None:
    assert one(A, ZERO, ZERO, B, ZERO) == ([1.0, -0.5], True)


def test_a_length_counts_frames_that_are_zero_and_cuts_off_others() -> None:
    assert one(A, B, ZERO, ZERO, length=4) == ([1.0, -0.5], True)
    assert one(A, B, B, B, length=2) == (MEAN, True)
    assert pool(np.array([[A, B, B, B]]), np.array([2])).left_out == 1


def test_a_length_that_misses_every_frame_is_not_believed() -> None:
    assert one(ZERO, A, B, ZERO, length=1) == (MEAN, True)


@pytest.mark.parametrize("length", [None, 0, 1, 3])
def test_a_row_without_frames_is_not_available(length: int | None) -> None:
    assert one(ZERO, ZERO, ZERO, length=length) == (ZERO, False)


def test_what_is_not_finite_counts_as_zero_and_is_counted() -> None:
    bad = np.array([[[np.nan, 2.0], [-np.inf, np.inf]], [[np.nan, np.nan], [np.inf, np.nan]]])
    pooled = pool(bad)
    assert pooled.corrected == 7
    assert pooled.features.tolist() == [[0.0, 2.0], ZERO]
    assert pooled.available.tolist() == [True, False]


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 6), st.sampled_from(["f4", "f8", ">f8", "i2"]))
def test_chunks_and_types_give_what_a_loop_gives(seed: int, rows: int, frames: int, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    sequences: Any = (rng.integers(-3, 3, (rows, frames, 4)) * rng.integers(0, 2, (rows, frames, 1))).astype(dtype)
    expected = []
    for row in sequences.astype(float):
        there = np.flatnonzero(row.any(axis=1))
        expected.append(row[there[0] : there[-1] + 1].mean(axis=0) if there.size else np.zeros(4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pooling, "_CHUNK_BYTES", 100)
        pooled = pool(sequences)
    np.testing.assert_allclose(pooled.features, expected, rtol=1e-6, atol=1e-7)
    assert pooled.features.dtype == np.float32


def test_each_modality_becomes_a_vector_beside_vectors_that_stay() -> None:
    rng = np.random.default_rng(0)
    rows = Rows.of(
        ["a", "b", "c"],
        np.zeros(3),
        {
            "vector": rng.standard_normal((3, 5), dtype=np.float32),
            "frames": np.array([[A, B], [A, ZERO], [B, B]], np.float32),
            "image": np.full((3, 2, 9, 4), 7, np.uint8),
            "tokens": np.array([[1, 2, 257], [4, 0, 0], [5, 5, 5]]),
        },
        lengths={"frames": np.array([2, 1, 2]), "tokens": np.array([3, 1, 3])},
    )
    vectors = as_vectors(rows)
    assert vectors.features["vector"] is rows.features["vector"]
    assert vectors.features["frames"].tolist() == [[*MEAN, 1, 3], [*A, 0, 0], [*B, 0, 0]]
    assert vectors.features["image"].tolist() == [[7.0] * 2 * 8 * 4] * 3
    shares = vectors.features["tokens"]
    assert shares.shape == (3, 256)
    np.testing.assert_allclose([shares[0, 1], shares[0, 2], shares[1, 4], shares[2, 5]], [2 / 3, 1 / 3, 1, 1])
    assert not vectors.lengths

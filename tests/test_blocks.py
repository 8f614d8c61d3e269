"""Rows in blocks: what is computed of them is what is computed of all rows at once, in a part of the memory."""

import tracemalloc

import numpy as np
import pytest

from mbd import blocks, tensors
from mbd.blocks import Columns, convert, in_blocks, row_by_row, spans, take_rows
from mbd.tensors import file_of, release, scratch

ROWS = 5000


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 1,024 rows, and every array of some size in a file."""
    monkeypatch.setattr(blocks, "_NUMBERS", 1)
    monkeypatch.setattr(tensors, "_SCRATCH_AT_LEAST", 1000)


def matrix(columns: int = 7) -> tensors.Array:
    return np.random.default_rng(columns).standard_normal((ROWS, columns)).astype(np.float32)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_hold_every_row_once_and_in_order() -> None:
    rows = np.random.default_rng(0).permutation(ROWS)
    assert (np.concatenate(list(in_blocks(rows, 3))) == rows).all()
    assert len(list(in_blocks(rows, 3))) == -(-ROWS // 1024)
    assert (np.concatenate([np.arange(ROWS)[span] for span in spans(ROWS, 3)]) == np.arange(ROWS)).all()
    assert not list(in_blocks(rows[:0], 3))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("columns", [2, 5, 74])
def test_sums_row_by_row_are_those_of_numpy_to_the_last_bit(columns: int) -> None:
    x = matrix(columns)
    whole = x.astype(np.float64)
    own = Columns((x,), np.arange(ROWS))
    mean = row_by_row(own) / ROWS
    assert mean.tobytes() == whole.mean(0).tobytes()
    deviation = np.sqrt(row_by_row(own, lambda block: np.square(block - mean)) / ROWS)
    assert deviation.tobytes() == whole.std(0).tobytes()


@pytest.mark.usefixtures("small_blocks")
def test_a_sum_leaves_the_array_as_it_is() -> None:
    x = matrix().astype(np.float64)
    before = x.copy()
    row_by_row(x)
    assert (x == before).all()


@pytest.mark.usefixtures("small_blocks")
def test_rows_that_are_taken_or_converted_are_those_of_numpy_and_lie_in_a_file() -> None:
    x, chosen = matrix(), np.random.default_rng(1).random(ROWS) < 0.5
    some, wide = take_rows(x, chosen), convert(x, np.float64)
    assert file_of(some) is not None
    assert file_of(wide) is not None
    assert (some == x[chosen]).all()
    assert (wide == x).all()
    assert wide.dtype == np.float64
    assert convert(x, np.float32) is x


@pytest.mark.usefixtures("small_blocks")
def test_an_array_in_a_file_keeps_what_is_written_when_its_memory_is_given_back() -> None:
    kept = scratch((ROWS, 3), np.float32)
    assert not kept.any()
    kept[:] = matrix(3)
    release(kept)
    release(kept[:10])
    assert (kept == matrix(3)).all()


def test_small_arrays_are_in_memory() -> None:
    assert not file_of(scratch((10, 3), np.float32))
    release(np.zeros(3))


@pytest.mark.usefixtures("small_blocks")
def test_columns_of_several_arrays_are_read_side_by_side() -> None:
    one, other, rows = matrix(3), matrix(5), np.arange(ROWS)[::-7]
    both = Columns((one, other), rows)
    assert both.shape == (len(rows), 8)
    at = np.array([5, 0, 5])
    assert (both[at] == np.hstack([one, other])[rows[at]]).all()
    assert (both.cut(slice(2))[at] == np.hstack([one[:, :2], other[:, :2]])[rows[at]]).all()


@pytest.mark.usefixtures("small_blocks")
def test_a_sum_takes_the_memory_of_a_block() -> None:
    x = Columns((scratch((200_000, 16), np.float32),), np.arange(200_000))
    tracemalloc.start()
    row_by_row(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000 * 16 * 8 / 20

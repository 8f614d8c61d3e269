"""Safetensors files: the library writes, we map; damaged files are recognised."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from mbd.errors import DataError
from mbd.files import sha256_file
from mbd.tensors import Array, open_tensors, round_mantissa, save_tensors, within_mantissa
from tests.refusals import refused

TENSORS = st.dictionaries(
    st.text("abc.", min_size=1, max_size=4),
    st.sampled_from([np.bool_, np.uint8, np.int8, np.int32, np.int64, np.float16, np.float32, np.float64]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    max_size=4,
)


def refused_as_damaged(file: Path, how: str = "") -> "pytest.RaisesExc[DataError]":
    """Return what expects that a tensor file is damaged."""
    return refused(DataError, match=f"damaged or cut off: .*{how}", file=file)


@settings(deadline=None, max_examples=60)
@given(TENSORS)
def test_what_is_written_is_read_back_as_the_library_reads_it(tensors: dict[str, Array]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.safetensors"
        assert save_tensors(path, tensors) == sha256_file(path)
        ours, theirs = open_tensors(path), load_file(path)
        assert ours.keys() == theirs.keys() == tensors.keys()
        for name, tensor in tensors.items():
            assert ours[name].shape == theirs[name].shape == tensor.shape
            assert ours[name].tobytes() == theirs[name].tobytes() == tensor.tobytes()


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    tensors = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}
    save_file(tensors, tmp_path / "t.safetensors")
    for name, tensor in open_tensors(tmp_path / "t.safetensors").items():
        np.testing.assert_array_equal(tensor, tensors[name])


def test_the_order_of_tensors_does_not_matter(tmp_path: Path) -> None:
    a, b = np.ones(3), np.zeros(2, np.int8)
    save_tensors(tmp_path / "1", {"a": a, "b": b})
    save_tensors(tmp_path / "2", {"b": b, "a": a})
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.parametrize("keep", [0, 4, 7, 8, 20, -1])
def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "t.safetensors"
    save_tensors(path, {"x": np.arange(10.0)})
    path.write_bytes(path.read_bytes()[:keep])
    with refused_as_damaged(path):
        open_tensors(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [-2, -2], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]},
        {"dtype": "OBJECT", "shape": [4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4]},
        {"dtype": "F32", "shape": [400], "data_offsets": [0, 1600]},
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, entry: dict[str, object]) -> None:
    header = json.dumps({"x": entry}).encode()
    path = tmp_path / "t.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with refused_as_damaged(path, "'x'"):
        open_tensors(path)


F32 = '{"dtype": "F32", "shape": [2], "data_offsets": [%d, %d]}'
SURPLUS = {
    "bytes appended": ('{"x": ' + F32 % (0, 8) + "}", 12),
    "a gap between tensors": ('{"x": ' + F32 % (0, 8) + ', "y": ' + F32 % (12, 20) + "}", 20),
    "overlapping tensors": ('{"x": ' + F32 % (0, 8) + ', "y": ' + F32 % (4, 12) + "}", 12),
    "a name twice": ('{"x": ' + F32 % (0, 8) + ', "x": ' + F32 % (0, 8) + "}", 8),
    "metadata": ('{"__metadata__": {"note": "hidden"}, "x": ' + F32 % (0, 8) + "}", 8),
    "another key": ('{"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "note": "hidden"}}', 8),
    "a fraction": ('{"x": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}}', 8),
    "infinity": ('{"x": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 8]}}', 8),
    "nesting": ("[" * 100_000, 0),
    "too many dimensions": (f'{{"x": {{"dtype": "F32", "shape": {[1] * 70}, "data_offsets": [0, 4]}}}}', 4),
    "an empty tensor of impossible size": (
        f'{{"x": {{"dtype": "F32", "shape": [0, {2**70}], "data_offsets": [0, 0]}}}}',
        0,
    ),
    "a name that cannot be printed": ('{"\\ud800": ' + F32 % (0, 8) + "}", 8),
}


@pytest.mark.parametrize("what", SURPLUS)
def test_a_file_that_holds_more_than_its_tensors_is_refused(tmp_path: Path, what: str) -> None:
    text, size = SURPLUS[what]
    path = tmp_path / "t.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + bytes(size))
    with refused_as_damaged(path):
        open_tensors(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with refused(DataError, match="missing", file=tmp_path / "none"):
        open_tensors(tmp_path / "none")


@settings(deadline=None, max_examples=200)
@given(
    hnp.arrays(np.float32, hnp.array_shapes(min_dims=0, max_dims=2, max_side=6), elements=st.floats(width=32)),
    st.integers(1, 23),
)
@example(np.array(0x7FFFFFFF, np.uint32).view(np.float32), 1)  # NaN with all bits set
def test_rounding_keeps_the_nearest_number_of_so_many_bits(array: Array, bits: int) -> None:
    rounded = round_mantissa(array, bits)
    assert (rounded.dtype, rounded.shape) == (array.dtype, array.shape)
    finite = np.isfinite(array)
    assert within_mantissa(rounded[finite], bits)
    assert np.array_equal(rounded[~finite], array[~finite], equal_nan=True)
    assert np.isfinite(rounded[finite]).all()
    assert np.array_equal(round_mantissa(rounded, bits), rounded, equal_nan=True)
    normal = finite & (np.abs(array) > 1e-37) & (np.abs(array) < 1e38)
    fraction, exponent = np.frexp(array[normal].astype(np.float64))
    assert np.array_equal(rounded[normal], np.ldexp(np.round(np.ldexp(fraction, bits + 1)), exponent - bits - 1))


@pytest.mark.parametrize(("dtype", "mantissa"), [(np.float16, 10), (np.float32, 23), (np.float64, 52)])
def test_one_bit_too_many_is_seen_and_integers_have_none(dtype: type, mantissa: int) -> None:
    for bits in (3, mantissa - 1):
        array: Array = np.array([1 + 2.0**-bits, 0, -1], dtype)
        assert within_mantissa(array, bits)
        assert not within_mantissa(array, bits - 1)
    assert round_mantissa(array, mantissa + 5) is array
    whole = np.array([3, 5])
    assert round_mantissa(whole, 1) is whole
    assert within_mantissa(whole, 1)

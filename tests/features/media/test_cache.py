"""The cache gives back what was put into it, and nothing that was not."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mbd.features.media.encoders import VectorCache
from mbd.tensors import Array

VECTORS = arrays.arrays(np.float32, st.integers(0, 8), elements=st.floats(width=32))


@settings(deadline=None, max_examples=40)
@given(VECTORS, st.integers(0, 10_000), st.integers(1, 255))
def test_an_entry_comes_back_bit_for_bit_and_an_altered_one_not_at_all(vector: Array, place: int, change: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cache = VectorCache(Path(folder), "encoder")
        assert cache.get("content") is None
        cache.put("content", vector)
        found = cache.get("content")
        assert found is not None
        assert found.tobytes() == vector.tobytes()
        (file,) = Path(folder).rglob("*.vector")
        data = bytearray(file.read_bytes())
        data[place % len(data)] ^= change
        file.write_bytes(data)
        assert cache.get("content") is None


def test_an_entry_that_is_cut_off_or_under_a_wrong_name_is_not_trusted(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "encoder")
    cache.put("a", np.arange(4, dtype=np.float32))
    (first,) = tmp_path.rglob("*.vector")
    cache.put("b", np.ones(4, np.float32))
    (second,) = set(tmp_path.rglob("*.vector")) - {first}
    second.write_bytes(first.read_bytes())
    assert cache.get("b") is None
    first.write_bytes(first.read_bytes()[:-4])
    assert cache.get("a") is None
    first.write_bytes(b"")
    assert cache.get("a") is None


def test_another_encoder_finds_nothing(tmp_path: Path) -> None:
    VectorCache(tmp_path, "one").put("content", np.ones(3, np.float32))
    assert VectorCache(tmp_path, "other").get("content") is None

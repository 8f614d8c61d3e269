"""Pickles: data comes back as it was, and nothing else comes in."""

import pickle
import pickletools
import sys
import tempfile
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from mbd.errors import DataError, ExitCode
from mbd.features.pickles import load_pickle
from mbd.features.pickles.values import BUILDERS
from tests.features.hostile import array, call, corpus, dtype, name, number, pair, text, whole
from tests.features.python2 import python2_dumps
from tests.refusals import refused

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def loaded(data: bytes) -> Any:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        return load_pickle(Path(file.name))


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in type and content, down to the bits of arrays."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return False
        return same(one.ravel().tolist(), other.ravel().tolist()) if one.dtype.hasobject else _bits(one) == _bits(other)
    if isinstance(one, np.generic):
        return bool(one.dtype == other.dtype) and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            same(*keys) and same(one[keys[0]], other[keys[1]]) for keys in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or repr(one) == repr(other)


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# Hostile files


def test_a_hostile_pickle_is_refused_by_name_and_nothing_in_it_runs(tmp_path: Path) -> None:
    sentinel, file = tmp_path / "sprung", tmp_path / "features.pkl"
    for hostile in corpus():
        file.write_bytes(hostile.make(sentinel))
        if hostile.live:
            pickle.loads(file.read_bytes())
            assert sentinel.exists(), f"the payload of {hostile.name} is meant to work"
            sentinel.unlink()
        with pytest.raises(DataError) as refusal:
            load_pickle(file)
        assert not sentinel.exists(), hostile.name
        for phrase in hostile.says:
            assert phrase in str(refusal.value), hostile.name
    assert str(file) in str(refusal.value)
    assert refusal.value.hint
    assert refusal.value.exit_code == ExitCode.BAD_DATA


def test_no_hostile_pickle_takes_more_memory_than_it_brings(tmp_path: Path) -> None:
    for hostile in corpus():
        data = hostile.make(tmp_path / "sprung")
        tracemalloc.start()
        with pytest.raises(DataError):
            loaded(data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1_000_000 + 200 * len(data), hostile.name


def test_not_even_the_module_of_a_refused_name_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sprung_on_import.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError, match=r"it asks for sprung_on_import\.anything"):
        loaded(whole(call(name("sprung_on_import", "anything"), text("x"))))
    assert "sprung_on_import" not in sys.modules


def test_a_long_list_of_names_is_cut() -> None:
    with pytest.raises(DataError, match=r"evil\.f19 and 30 more\n") as refusal:
        loaded(whole(b"(" + b"".join(name("evil", f"f{k}") for k in range(50)) + b"l"))
    assert "evil.f20" not in refusal.value.problem


# Damaged files


def test_a_file_that_is_cut_off_anywhere_is_refused() -> None:
    data = pickle.dumps({"train": {"audio": np.ones((3, 2)), "id": ["a$_$1", "b"]}}, protocol=4)
    for length in range(1, len(data)):
        with pytest.raises(DataError, match="cut off or damaged at byte"):
            loaded(data[:length])


def test_an_empty_file_a_folder_and_no_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the file is empty"):
        loaded(b"")
    with pytest.raises(DataError, match="cannot be read"):
        load_pickle(tmp_path)
    with refused(DataError, key="features.source.path", file=tmp_path / "none.pkl"):
        load_pickle(tmp_path / "none.pkl")


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04 zip", b"\x89HDF\r\n", b"id,text\n1,2\n", b'{"train": []}', b"ID\n1\n", b"."]
)
def test_another_kind_of_file_is_no_pickle(data: bytes) -> None:
    with pytest.raises(DataError, match="this is not a pickle"):
        loaded(data)


_PIECES = st.sampled_from(
    [
        *(bytes([code]) for code in range(256)),
        *(name(module, attribute) for module, attribute in BUILDERS),
        *(name("os", "system"), text("numpy"), text("dtype"), text("f4"), text("latin1"), text("x" * 5000)),
        *(number(k) for k in (-1, 0, 1, 4, 10**12)),
        *(pair(number(3)), dtype("f4"), dtype("O8", "|"), array(pair(number(1)), dtype("f4"), b"C\4abcd")),
        *(b"q\0", b"h\0", b"p1\n", b"g1\n", b"G" + bytes(8), b"K\7", b"C\4abcd", b"\x95" + bytes(8)),
    ]
)


@settings(deadline=None, max_examples=300)
@given(st.lists(_PIECES, max_size=30))
def test_any_program_gives_a_value_or_a_refusal(pieces: list[bytes]) -> None:
    try:
        loaded(whole(b"".join(pieces)))
    except DataError as error:
        assert error.hint


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(PROTOCOLS), st.integers(0, 300), st.integers(0, 20), st.binary(max_size=20))
def test_any_damage_gives_a_value_or_a_refusal(protocol: int, at: int, lost: int, noise: bytes) -> None:
    honest = pickle.dumps({"a": [np.ones(3), {"b"}, np.float32(2)], "c": (1, "x" * 5)}, protocol)
    try:
        loaded(honest[:at] + noise + honest[at + lost :])
    except DataError as error:
        assert error.hint


# Honest files

_ATOMS: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.complex_numbers()
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
_HASHED = _ATOMS.filter(lambda value: value == value)  # NaN has no place in a set
_DTYPES: st.SearchStrategy[np.dtype[Any]] = (
    st_numpy.boolean_dtypes()
    | st_numpy.integer_dtypes(endianness="?")
    | st_numpy.unsigned_integer_dtypes(endianness="?")
    | st_numpy.floating_dtypes(endianness="?")
    | st_numpy.complex_number_dtypes(endianness="?")
    | st_numpy.byte_string_dtypes()
    | st_numpy.unicode_string_dtypes(endianness="?")
)
_ARRAYS = st.builds(
    lambda array, change: change(array),
    st_numpy.arrays(_DTYPES, st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)),
    st.sampled_from(
        [np.asarray, np.transpose, np.asfortranarray, lambda array: array[..., ::-1] if array.ndim else array]
    ),
)
_SCALARS = _DTYPES.flatmap(lambda dtype: st_numpy.arrays(dtype, ())).map(lambda array: array[()])
_KEYS = _HASHED | st.lists(_HASHED, max_size=3).map(tuple)


def _objects(items: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
        array[place] = item
    return array


_VALUES = st.recursive(
    _ATOMS | _ARRAYS | _SCALARS | _DTYPES | st.binary(max_size=10).map(bytearray),
    lambda values: (
        st.lists(values, max_size=4)
        | st.lists(values, max_size=4).map(tuple)
        | st.dictionaries(_KEYS, values, max_size=4)
        | st.dictionaries(_KEYS, values, max_size=4).map(OrderedDict)
        | st.sets(_KEYS, max_size=4)
        | st.frozensets(_KEYS, max_size=4)
        | st.lists(values, max_size=3).map(_objects)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(_VALUES, st.sampled_from(PROTOCOLS), st.booleans())
def test_any_structure_of_data_comes_back_as_it_was(value: Any, protocol: int, optimized: bool) -> None:
    data = pickle.dumps([value, value], protocol)
    back = loaded(pickletools.optimize(data) if optimized else data)
    assert same(back, [value, value])
    assert back[0] is back[1] or not isinstance(value, list | dict | np.ndarray)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_large_array_is_a_view_of_the_file(protocol: int, tmp_path: Path) -> None:
    value = {"audio": np.arange(200_000, dtype=np.float64).reshape(2, 100, 1000), "text": np.ones(5000, np.float32)}
    file = tmp_path / "features.pkl"
    file.write_bytes(pickle.dumps(value, protocol))
    tracemalloc.start()
    back: Any = load_pickle(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert same(back, value)
    assert protocol < 3 or peak < 200_000  # before, bytes were written as text


def test_the_twins_of_refused_forms_come_in() -> None:
    """What the hostile files misuse is read where data needs it."""
    twins: list[Any] = [
        bytearray(b"abc"),
        b"\xff\x00",
        {("a", 1): {frozenset({1, 2})}},
        np.array([[None, "x"], [np.ones(2), [1]]], dtype=object),
        OrderedDict(b=1, a=2),
        np.zeros((0, 768), np.float32),
        np.array(["Positive", "Negative"]),
        np.dtype(">f4"),
        2 + 3j,
    ]
    for protocol in PROTOCOLS:
        assert same(loaded(pickle.dumps(twins, protocol)), twins)


def test_a_structure_that_holds_itself_comes_back_so() -> None:
    ring: list[Any] = [1]
    ring.append((ring, {"ring": ring}))
    for protocol in PROTOCOLS:
        back = loaded(pickle.dumps(ring, protocol))
        assert back[1][0] is back
        assert back[1][1]["ring"] is back


def test_a_value_a_hundred_thousand_deep_comes_in() -> None:
    back = loaded(whole(b"]" * 100_000 + b"a" * 99_999))
    for _ in range(99_999):
        (back,) = back
    assert back == []


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_what_python_2_wrote_comes_in_as_text_and_arrays(protocol: int) -> None:
    value = {
        "ids": ["Ses01F_impro01_F000", "é", "it's"],
        "train": {"Ses01F_impro01"},
        "text": np.arange(2000, dtype=np.float32).reshape(2, 1000),
        "labels": [np.int64(3), 2, 10**30, -1.5, True, None],
        "words": np.array(["ab", "c"]),
    }
    data = python2_dumps(value, protocol)
    assert b"numpy.core" in data
    assert b"numpy._core" not in data
    assert same(loaded(data), value)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("respell", [lambda module: module, lambda module: module.replace("numpy._core", "numpy.core")])
def test_both_spellings_of_numpy_are_understood(protocol: int, respell: Callable[[str], str]) -> None:
    value = [np.ones((2, 3)), np.float32(1.5), np.arange(6).reshape(2, 3).T]
    data = pickle.dumps(value, protocol)
    steps = [(opcode.name, argument, at or 0) for opcode, argument, at in pickletools.genops(data)]
    respelt = b""
    for (opcode, argument, begin), end in zip(steps, [*(at for _, _, at in steps[1:]), len(data)], strict=True):
        if opcode == "GLOBAL":
            respelt += name(*respell(str(argument)).split(" "))
        elif opcode == "SHORT_BINUNICODE":
            respelt += text(respell(str(argument)))
        elif opcode != "FRAME":
            respelt += data[begin:end]
    assert same(loaded(respelt), value)

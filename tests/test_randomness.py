"""Streams belong to their seed and names."""

from hypothesis import given
from hypothesis import strategies as st

from mbd.randomness import stream, stream_seed


def test_a_stream_can_be_drawn_again() -> None:
    assert stream(3, "a").integers(1 << 60) == stream(3, "a").integers(1 << 60)


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_different_names_have_different_streams(one: list[str], other: list[str]) -> None:
    assert (stream_seed(0, *one) == stream_seed(0, *other)) == (one == other)


def test_different_seeds_have_different_streams() -> None:
    assert stream_seed(1, "a") != stream_seed(11, "a")

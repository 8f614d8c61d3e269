"""Any two clipped vectors are within the sensitivity, and distances split into inside and outside."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.deletion.reference import distances
from mbd.privacy.noise import clip, of_ball
from mbd.tensors import Array


def tensors(seed: int, scale: float) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"a": (scale * rng.standard_normal((4, 3))).astype(np.float32), "b": scale * rng.standard_normal(5)}


def flat(vector: dict[str, Array]) -> Array:
    return np.concatenate([array.ravel() for array in vector.values()])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 99), st.integers(0, 99), st.floats(1e-6, 1e6), st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_any_two_clipped_vectors_are_at_most_the_sensitivity_apart(
    seed: int, other: int, scale: float, other_scale: float, radius: float
) -> None:
    one, two = flat(clip(tensors(seed, scale), radius)), flat(clip(tensors(other, -other_scale), radius))
    assert np.linalg.norm(one) <= radius * (1 + 1e-12)
    assert np.linalg.norm(one - two) <= of_ball(radius).value * (1 + 1e-12)


def test_the_bound_is_reached_by_opposite_vectors() -> None:
    vector = tensors(1, 100.0)
    opposite = {name: -array for name, array in vector.items()}
    apart = np.linalg.norm(flat(clip(vector, 1.5)) - flat(clip(opposite, 1.5)))
    assert apart == pytest.approx(of_ball(1.5).value)


def test_a_short_vector_is_left_as_it_is() -> None:
    vector = tensors(2, 1e-3)
    assert np.array_equal(flat(clip(vector, 1.0)), flat(vector))
    nothing = {"a": np.zeros(3)}
    assert not clip(nothing, 1.0)["a"].any()


def test_the_reason_names_the_radius() -> None:
    assert "C = 0.5" in of_ball(0.5).reason
    assert "2C = 1 " in of_ball(0.5).reason


def test_distances_inside_and_outside_make_up_the_whole() -> None:
    one, two = tensors(3, 1.0), tensors(4, 1.0)
    found = distances(one, two, {"a": np.array([0, 5])})
    difference = (one["a"] - two["a"]).ravel()
    assert found["inside"] == pytest.approx(np.linalg.norm(difference[[0, 5]]), rel=1e-6)
    assert np.hypot(found["inside"], found["outside"]) == pytest.approx(np.linalg.norm(flat(one) - flat(two)), rel=1e-6)

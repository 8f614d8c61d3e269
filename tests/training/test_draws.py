"""What training draws depends on seed and epoch alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.tensors import Array
from mbd.training.draws import Step, initial_weights, steps_of_epoch


def steps(seed: int, epoch: int, available: dict[str, Array], rate: float = 0.4) -> list[Step]:
    return list(
        steps_of_epoch(seed, epoch, available, batch_size=8, fusion=((6, 0.5), (4, 0.25)), modality_dropout=rate)
    )


AVAILABLE = {"text": np.arange(21) % 3 > 0, "audio": np.arange(21) % 3 == 0, "visual": np.arange(21) % 2 == 0}


def test_an_epoch_has_every_row_once() -> None:
    found = steps(0, 0, AVAILABLE)
    assert [len(step.rows) for step in found] == [8, 8, 5]
    assert sorted(np.concatenate([step.rows for step in found])) == list(range(21))


def test_the_same_epoch_is_drawn_again_and_another_is_not() -> None:
    one, again, other = (steps(0, epoch, AVAILABLE) for epoch in (3, 3, 4))
    for a, b in zip(one, again, strict=True):
        np.testing.assert_array_equal(a.rows, b.rows)
        np.testing.assert_array_equal(a.masks[0], b.masks[0])
        np.testing.assert_array_equal(a.masks[1], b.masks[1])
        for m in AVAILABLE:
            np.testing.assert_array_equal(a.shown[m], b.shown[m])
    assert any((a.rows != b.rows).any() for a, b in zip(one, other, strict=True))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.floats(0, 0.95))
def test_only_what_is_there_is_shown_and_every_row_shows_something(seed: int, rate: float) -> None:
    for step in steps(seed, 0, AVAILABLE, rate):
        shown = np.array(list(step.shown.values()))
        there = np.array([bits[step.rows] for bits in AVAILABLE.values()])
        assert not (shown & ~there).any()
        assert shown.any(0).all()


def test_nothing_is_hidden_at_rate_zero_and_little_is_shown_at_a_high_one() -> None:
    there = sum(int(bits.sum()) for bits in AVAILABLE.values())
    counts = [sum(int(b.sum()) for s in steps(0, 0, AVAILABLE, rate) for b in s.shown.values()) for rate in (0, 0.8)]
    assert counts[0] == there
    assert counts[1] < there


def test_a_mask_keeps_the_expected_value() -> None:
    inputs, hidden = steps(0, 0, AVAILABLE)[0].masks
    assert inputs.shape == (8, 6)
    assert hidden.shape == (8, 4)
    assert set(np.unique(inputs)) == {0.0, 2.0}
    np.testing.assert_allclose(np.unique(hidden), [0, 4 / 3], rtol=1e-6)


def test_weights_have_a_stream_each() -> None:
    both = initial_weights(0, {"a.weight": (3, 4), "b.weight": (3, 4), "b.bias": (3,)})
    alone = initial_weights(0, {"b.weight": (3, 4)})
    np.testing.assert_array_equal(both["b.weight"], alone["b.weight"])
    assert (both["a.weight"] != both["b.weight"]).any()
    assert (np.abs(both["a.weight"]) <= 0.5).all()
    assert (both["b.bias"] == 0).all()
    assert {tensor.dtype for tensor in both.values()} == {np.dtype(np.float32)}

"""Blur, noise, and random choices that others are built from."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.features.corruption import gaussian_blur, local_order, share_mask, with_noise
from mbd.randomness import stream

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 40), st.floats(0.2, 12))
@settings(deadline=None, max_examples=100)
def test_blur_keeps_the_mean_and_the_range(seed: int, length: int, deviation: float) -> None:
    rows = stream(seed).standard_normal((3, length))
    blurred = gaussian_blur(rows, deviation, axis=1)
    np.testing.assert_allclose(blurred.mean(axis=1), rows.mean(axis=1), atol=1e-12)
    assert (blurred.max(axis=1) <= rows.max(axis=1) + 1e-12).all()
    assert (blurred.min(axis=1) >= rows.min(axis=1) - 1e-12).all()


def test_blur_of_one_point_is_the_gaussian_curve() -> None:
    point = np.zeros((41, 1))
    point[20] = 1.0
    curve = gaussian_blur(point, 2.0, axis=0)[:, 0]
    places = np.arange(41) - 20
    assert curve.sum() == pytest.approx(1.0)
    assert np.sqrt((curve * places**2).sum()) == pytest.approx(2.0, rel=1e-3)
    np.testing.assert_allclose(curve[18:23] / curve[20], np.exp(-np.array([4, 1, 0, 1, 4]) / 8))


def test_no_blur_and_what_type_comes_back() -> None:
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert (gaussian_blur(rows, 0.0, axis=1) == rows).all()
    assert gaussian_blur(rows, 1.0, axis=1).dtype == np.float32


@given(SEEDS, st.floats(-40, 80), st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=100)
def test_noise_has_exactly_the_ratio_asked_for_in_each_row(seed: int, snr_db: float, scale: float) -> None:
    signals = scale * stream(seed).standard_normal((4, 50))
    noise = with_noise(signals, snr_db, stream(seed, "noise")) - signals
    measured = 10 * np.log10(np.square(signals).sum(axis=1) / np.square(noise).sum(axis=1))
    np.testing.assert_allclose(measured, snr_db, atol=1e-6)


def test_silence_and_nothing_at_all_stay_as_they_are() -> None:
    assert not with_noise(np.zeros((2, 8), dtype=np.float32), 10, stream(0)).any()
    assert with_noise(np.zeros((1, 0), dtype=np.float32), 10, stream(0)).shape == (1, 0)


@given(SEEDS, st.integers(0, 5), st.integers(0, 50), st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_a_share_is_the_same_number_in_each_row(seed: int, rows: int, columns: int, share: float) -> None:
    mask = share_mask((rows, columns), share, stream(seed))
    expected = max(round(share * columns), 1 if share and columns else 0)
    assert (mask.sum(axis=1) == expected).all()


@given(SEEDS, st.integers(0, 40), st.integers(0, 6))
@settings(deadline=None, max_examples=100)
def test_a_local_order_is_a_permutation_that_moves_nothing_far(seed: int, columns: int, distance: int) -> None:
    order = local_order((3, columns), distance, stream(seed))
    assert (np.sort(order, axis=1) == np.arange(columns)).all()
    assert (np.abs(order - np.arange(columns)) <= distance).all()


def test_a_local_order_uses_all_the_room_it_has() -> None:
    order = local_order((200, 30), 3, stream(0))
    assert np.abs(order - np.arange(30)).max() == 3

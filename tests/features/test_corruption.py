"""Damage to signals, texts, vectors, frames and sound, and the random choices that it is built from."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.features.corruption import (
    blur_frames,
    corrupt,
    corrupt_frames,
    corrupt_text,
    corrupt_waveform,
    corrupted_rows,
    gaussian_blur,
    local_order,
    misspell,
    reorder,
    salt_and_pepper,
    share_mask,
    with_noise,
)
from mbd.features.rows import Rows
from mbd.params.base import CorruptionSettings
from mbd.randomness import stream
from mbd.tensors import Array
from tests.features.build import small_rows

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


SENTENCE = "The film was not bad at all, and the second half of it was a real pleasure to watch."


@given(st.text(max_size=80), st.floats(0.01, 1), SEEDS)
@settings(deadline=None, max_examples=300)
def test_misspelling_changes_the_text_but_no_token_comes_or_goes(text: str, share: float, seed: int) -> None:
    letters = sum(not c.isspace() for c in text)
    errors = max(round(share * letters), 1 if letters else 0)
    misspelt = misspell(text, share, stream(seed))
    assert len(misspelt.split()) == len(text.split())
    assert 0 <= len(text) - len(misspelt) <= errors
    assert [c for c in misspelt if c.isspace()] == [c for c in text if c.isspace()]
    assert (misspelt != text) == (letters > 0)
    # A swap changes no counts, a drop one, a replacement two.
    before, after = Counter(text), Counter(misspelt)
    assert ((before - after) + (after - before)).total() <= 2 * errors


def test_all_three_kinds_of_errors_happen() -> None:
    swapped = dropped = replaced = 0
    for seed in range(60):
        wrong = misspell("wonderful", 0.01, stream(seed))
        same_letters = Counter(wrong) == Counter("wonderful")
        swapped += same_letters
        dropped += len(wrong) == 8
        replaced += len(wrong) == 9 and not same_letters
    assert min(swapped, dropped, replaced) >= 8


def test_capitals_stay_capitals_and_no_share_means_no_errors() -> None:
    assert all(misspell("A", 1.0, stream(seed)) in "BCDEFGHIJKLMNOPQRSTUVWXYZ" for seed in range(50))
    assert misspell(SENTENCE, 0.0, stream(0)) == SENTENCE


@given(
    st.lists(st.text(st.characters(categories=["L"]), min_size=1, max_size=4), max_size=20), st.integers(0, 5), SEEDS
)
@settings(deadline=None, max_examples=150)
def test_reordering_keeps_the_tokens_and_moves_none_far(tokens: list[str], distance: int, seed: int) -> None:
    numbered = [f"{token}{i}" for i, token in enumerate(tokens)]
    moved = reorder(" ".join(numbered), distance, stream(seed)).split()
    assert sorted(moved) == sorted(numbered)
    assert all(abs(numbered.index(token) - place) <= distance for place, token in enumerate(moved))


def test_a_damaged_text_belongs_to_the_seed_and_the_row() -> None:
    first = corrupt_text(SENTENCE, CorruptionSettings(), 0, "v_1")
    assert first != SENTENCE
    assert first == corrupt_text(SENTENCE, CorruptionSettings(), 0, "v_1")
    assert first != corrupt_text(SENTENCE, CorruptionSettings(), 0, "v_2")
    assert first != corrupt_text(SENTENCE, CorruptionSettings(), 1, "v_1")
    assert len(first.split()) == len(SENTENCE.split())


DIMS = {"text": 40, "audio": 30, "visual": 50, "pulse": 20}
EVERY = CorruptionSettings(share=1.0)


def some_rows(n: int = 60) -> Rows:
    return small_rows("test", n, DIMS)


def snr(signals: Array, damaged: Array) -> Array:
    """The ratio in each row, every entry in units of its own size."""
    size = np.sqrt(np.square(signals).mean(axis=0))
    clean, noise = signals / size, (damaged.astype(np.float64) - signals) / size
    ratio: Array = 10 * np.log10(np.square(clean).sum(axis=1) / np.square(noise).sum(axis=1))
    return ratio


@given(st.integers(0, 500), st.floats(0, 1), SEEDS)
@settings(deadline=None, max_examples=100)
def test_the_number_of_damaged_rows_is_exact_and_a_greater_share_adds_rows(n: int, share: float, seed: int) -> None:
    mask = corrupted_rows(n, share, seed)
    assert mask.sum() == round(share * n)
    assert not (mask & ~corrupted_rows(n, 1.0, seed)).any()
    assert not (corrupted_rows(n, share / 2, seed) & ~mask).any()


@given(st.floats(0, 1), SEEDS)
@settings(deadline=None, max_examples=30)
def test_only_chosen_rows_change_and_they_change_in_every_modality(share: float, seed: int) -> None:
    rows = some_rows()
    before = {m: x.tobytes() for m, x in rows.features.items()}
    damaged = corrupt(rows, CorruptionSettings(share=share), seed)
    chosen = corrupted_rows(len(rows), share, seed)
    for m, x in damaged.features.items():
        assert x.dtype == np.float32
        assert x[~chosen].tobytes() == rows.features[m][~chosen].tobytes()
        assert (x[chosen] != rows.features[m][chosen]).any(axis=1).all()
        assert rows.features[m].tobytes() == before[m]
    assert (damaged.ids is rows.ids, damaged.labels is rows.labels) == (True, True)


def test_ten_percent_is_the_default() -> None:
    rows = some_rows(80)
    changed = (corrupt(rows, CorruptionSettings(), 0).features["audio"] != rows.features["audio"]).any(axis=1)
    assert changed.sum() == 8


def test_the_same_seed_gives_the_same_bytes_and_no_modality_depends_on_another() -> None:
    rows = some_rows()
    whole = corrupt(rows, EVERY, 5)
    alone = corrupt(replace(rows, features={"audio": rows.features["audio"]}), EVERY, 5)
    assert alone.features["audio"].tobytes() == whole.features["audio"].tobytes()
    assert corrupt(rows, EVERY, 5).features["text"].tobytes() == whole.features["text"].tobytes()
    assert corrupt(rows, EVERY, 6).features["text"].tobytes() != whole.features["text"].tobytes()


def test_what_is_unavailable_stays_zero() -> None:
    rows = some_rows()
    there = np.arange(60) % 3 > 0
    features = {m: np.where(there[:, None], x, np.float32(0)) for m, x in rows.features.items()}
    damaged = corrupt(replace(rows, features=features, available=dict.fromkeys(DIMS, there)), EVERY, 0)
    for m, x in damaged.features.items():
        assert not x[~there].any()
        assert (x[there] != features[m][there]).any(axis=1).all()


@pytest.mark.parametrize("modality", ["audio", "pulse"])
@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 20.0])
def test_audio_and_unknown_modalities_get_noise_at_the_ratio_in_each_row(modality: str, snr_db: float) -> None:
    rows = some_rows()
    damaged = corrupt(rows, CorruptionSettings(share=1.0, snr_db=snr_db), 0)
    np.testing.assert_allclose(snr(rows.features[modality], damaged.features[modality]), snr_db, atol=0.01)


def test_a_large_entry_does_not_drown_the_others() -> None:
    rows = some_rows()
    rows.features["audio"][:, 0] *= 1000
    damaged = corrupt(rows, CorruptionSettings(share=1.0, snr_db=10), 0).features["audio"]
    noise = np.abs(damaged - rows.features["audio"]).mean(axis=0)
    assert noise[1:].max() < 1 < noise[0]


def test_visual_blur_keeps_each_row_mean_and_smooths() -> None:
    rows = some_rows()
    damaged = corrupt(rows, CorruptionSettings(share=1.0, pepper=0.0), 0).features["visual"]
    np.testing.assert_allclose(damaged.mean(axis=1), rows.features["visual"].mean(axis=1), atol=1e-5)
    assert (damaged.std(axis=1) < rows.features["visual"].std(axis=1)).all()


def test_visual_salt_and_pepper_set_an_exact_share_to_the_extremes_of_the_entry() -> None:
    rows = some_rows()
    clean = rows.features["visual"]
    damaged = corrupt(rows, CorruptionSettings(share=1.0, blur=0.0, pepper=0.1), 0).features["visual"]
    low, high = clean.min(axis=0), clean.max(axis=0)
    changed = damaged != clean
    # An entry that is at its extreme already may be set to it.
    assert (changed.sum(axis=1) <= 5).all()
    assert changed.sum() > 0.95 * 5 * 60
    assert ((damaged == low) | (damaged == high))[changed].all()
    assert {bool(v) for v in (damaged == high)[changed]} == {True, False}


def test_text_takes_an_exact_share_of_entries_from_another_row() -> None:
    n = 60
    # Each entry says where it comes from: row·1000 + column.
    origin = (1000 * np.arange(n)[:, None] + np.arange(40)).astype(np.float32)
    rows = Rows.of([f"r{i}" for i in range(n)], np.zeros(n), {"text": origin})
    damaged = corrupt(rows, CorruptionSettings(share=1.0, typos=0.25, reorder=0), 0).features["text"]
    assert (damaged % 1000 == np.arange(40)).all()
    foreign = damaged // 1000 != np.arange(n)[:, None]
    assert (foreign.sum(axis=1) == 10).all()
    assert all(len(np.unique(row[f] // 1000)) == 1 for row, f in zip(damaged, foreign, strict=True))


def test_text_entries_change_places_but_not_by_far() -> None:
    columns = np.tile(np.arange(40, dtype=np.float32), (60, 1))
    rows = Rows.of([f"r{i}" for i in range(60)], np.zeros(60), {"text": columns})
    damaged = corrupt(rows, CorruptionSettings(share=1.0, typos=0.0, reorder=2), 0).features["text"]
    assert (np.sort(damaged, axis=1) == columns).all()
    assert np.abs(damaged - columns).max() == 2


def test_a_single_row_has_no_other_to_take_from() -> None:
    rows = some_rows(1)
    damaged = corrupt(rows, CorruptionSettings(share=1.0, reorder=0), 0)
    assert (damaged.features["text"] == rows.features["text"]).all()


def some_frames(*shape: int) -> Array:
    return stream(0, "frames").integers(0, 256, shape, dtype=np.uint8)


def test_blur_smooths_each_frame_and_each_colour_alone() -> None:
    frames = some_frames(2, 24, 32, 3)
    blurred = blur_frames(frames, 1.5)
    assert (blurred.dtype, blurred.shape) == (np.uint8, frames.shape)
    assert (blurred[1] == blur_frames(frames[1], 1.5)).all()
    np.testing.assert_allclose(blurred.mean(axis=(1, 2)), frames.mean(axis=(1, 2)), atol=0.5)
    assert (blurred.std(axis=(1, 2)) < 0.4 * frames.std(axis=(1, 2))).all()
    red = np.zeros((9, 9, 3), dtype=np.uint8)
    red[..., 0] = 200
    assert (blur_frames(red, 2.0) == red).all()


def test_salt_and_pepper_turn_an_exact_share_of_whole_pixels_black_or_white() -> None:
    frames = np.full((3, 20, 10, 3), 100, dtype=np.uint8)
    noisy = salt_and_pepper(frames, 0.05, stream(0))
    changed = (noisy != 100).any(axis=-1)
    assert changed.sum(axis=(1, 2)).tolist() == [10, 10, 10]
    assert set(np.unique(noisy[changed], axis=0)[:, 0].tolist()) == {0, 255}
    assert (noisy[changed].min(axis=1) == noisy[changed].max(axis=1)).all()
    assert (frames == 100).all()


@pytest.mark.parametrize("shape", [(16000,), (2, 8000)])
@pytest.mark.parametrize("snr_db", [-5.0, 10.0, 40.0])
def test_sound_gets_noise_at_the_ratio_asked_for(shape: tuple[int, ...], snr_db: float) -> None:
    tone = np.sin(np.arange(np.prod(shape)) / 9).reshape(shape).astype(np.float32)
    noise = corrupt_waveform(tone, CorruptionSettings(snr_db=snr_db), 0, "v_1").astype(np.float64) - tone
    assert 10 * np.log10(np.square(tone).mean() / np.square(noise).mean()) == pytest.approx(snr_db, abs=0.01)


def test_damage_belongs_to_the_seed_and_the_row() -> None:
    frames, tone = some_frames(12, 12, 3), np.sin(np.arange(100.0))
    for corrupted, raw in ((corrupt_frames, frames), (corrupt_waveform, tone)):
        first = corrupted(raw, CorruptionSettings(), 0, "v_1")
        assert first.tobytes() == corrupted(raw, CorruptionSettings(), 0, "v_1").tobytes()
        assert first.tobytes() != corrupted(raw, CorruptionSettings(), 0, "v_2").tobytes()
        assert first.tobytes() != corrupted(raw, CorruptionSettings(), 1, "v_1").tobytes()

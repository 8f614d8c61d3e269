"""Damage at the level of vectors."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.features.corruption import corrupt, corrupted_rows
from mbd.features.rows import Rows
from mbd.params.base import CorruptionSettings
from mbd.tensors import Array
from tests.features.build import small_rows

DIMS = {"text": 40, "audio": 30, "visual": 50, "pulse": 20}
EVERY = CorruptionSettings(share=1.0)
SEEDS = st.integers(0, 2**32 - 1)


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

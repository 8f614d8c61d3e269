"""Frames and sound."""

import numpy as np
import pytest

from mbd.features.corruption import blur_frames, corrupt_frames, corrupt_waveform, salt_and_pepper
from mbd.params.base import CorruptionSettings
from mbd.randomness import stream
from mbd.tensors import Array


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

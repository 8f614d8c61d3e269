"""The 37 descriptors mean what their names say."""

import numpy as np
import pytest

from mbd.features.media.audio import DESCRIPTORS, NAMES, audio_vector, describe
from mbd.tensors import Array
from tests.features.media.build import RATE, tone


def named(waveform: Array, rate: int = RATE) -> dict[str, float]:
    return dict(zip(NAMES, audio_vector(waveform, rate).tolist(), strict=True))


def noise(seconds: float = 1.0) -> Array:
    return np.random.default_rng(0).normal(0, 0.1, int(RATE * seconds)).astype(np.float32)


def test_there_are_37_descriptors_and_74_numbers() -> None:
    assert len(set(DESCRIPTORS)) == 37
    assert len(set(NAMES)) == 74
    assert audio_vector(tone(220, 0.5), RATE).shape == (74,)
    assert audio_vector(tone(220, 0.5), RATE).dtype == np.float32


def test_each_descriptor_is_where_its_name_is() -> None:
    low, high, hiss = named(tone(150, 1.0)), named(tone(400, 1.0)), named(noise())
    assert low["pitch_mean"] == pytest.approx(150, rel=0.03)
    assert high["pitch_mean"] == pytest.approx(400, rel=0.03)
    assert low["centroid_mean"] < high["centroid_mean"] < hiss["centroid_mean"]
    assert hiss["flatness_mean"] > 0.3 > 0.01 > low["flatness_mean"]
    assert hiss["rolloff_85_mean"] == pytest.approx(0.85 * RATE / 2, rel=0.05)
    assert hiss["rolloff_15_mean"] == pytest.approx(0.15 * RATE / 2, rel=0.1)
    assert high["zero_crossings_mean"] == pytest.approx(2 * 400 / RATE, rel=0.1)
    assert hiss["bandwidth_mean"] > high["bandwidth_mean"]
    assert low["slope_mean"] < hiss["slope_mean"] < 1e-3
    assert low["contrast_1_mean"] > hiss["contrast_1_mean"]
    assert named(2 * tone(150, 1.0))["loudness_mean"] == pytest.approx(2 * low["loudness_mean"], rel=1e-3)
    bursts = noise() * (np.arange(RATE) % (RATE // 4) < RATE // 16)
    assert named(bursts)["onset_mean"] > hiss["onset_mean"]
    assert named(bursts)["loudness_deviation"] > hiss["loudness_deviation"]


def test_means_come_before_deviations() -> None:
    values = describe(noise(0.3), RATE)
    assert len(values) == 37
    np.testing.assert_allclose(audio_vector(noise(0.3), RATE), [*values.mean(1), *values.std(1)], rtol=1e-5)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100, 48000])
def test_silence_and_the_shortest_sounds_have_numbers_too(rate: int) -> None:
    for sound in (np.zeros(4000, np.float32), np.ones(1, np.float32), noise(0.01), tone(90, 0.4)):
        assert np.isfinite(audio_vector(sound, rate)).all()

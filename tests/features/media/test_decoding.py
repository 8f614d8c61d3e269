"""Frames are taken evenly and upright, sound comes at the rate asked for, broken files say so."""

import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbd.errors import DataError
from mbd.features.media.decoding import even_ordinals, read_frames, read_waveform
from tests.features.media.build import RATE, moving_colours, tone, write_video, write_wav
from tests.refusals import refused


@given(st.integers(1, 500), st.integers(1, 40))
def test_even_ordinals_are_the_middles_of_equal_parts(total: int, count: int) -> None:
    ordinals = np.array(even_ordinals(total, count))
    assert len(ordinals) == count
    assert ordinals.min() >= 0
    assert ordinals.max() < total
    assert (ordinals + ordinals[::-1] - (total - 1) <= 1).all()
    steps = np.diff(ordinals)
    assert count == 1 or steps.max() - steps.min() <= 1


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "mpeg4"), ("b.mkv", "libx264"), ("c.webm", "libvpx")])
def test_the_right_frames_of_a_video(tmp_path: Path, name: str, codec: str) -> None:
    frames = moving_colours(40, count=12)
    found = read_frames(write_video(tmp_path / name, frames, codec=codec), 4)
    assert found.shape == (4, 48, 64, 3)
    assert found.dtype == np.uint8
    # Frames 1, 4, 7 and 10 of 12; each step of red is 12, so a neighbour would be 12 away.
    np.testing.assert_allclose(found[..., 0].mean((1, 2)), frames[[1, 4, 7, 10], ..., 0].mean((1, 2)), atol=5)
    np.testing.assert_allclose(found[..., 1].mean((0, 1)), frames[0, 0, :, 1], atol=16)


def test_a_video_shorter_than_the_frames_asked_for_repeats_some(tmp_path: Path) -> None:
    found = read_frames(write_video(tmp_path / "v.mp4", moving_colours(0, count=2)), 5)
    assert len(found) == 5
    assert (found[0] == found[1]).all()
    assert (found[3] == found[4]).all()
    assert (found[0] != found[4]).any()


def test_a_video_is_turned_as_it_asks_for(tmp_path: Path) -> None:
    """Telephones store what the sensor saw and a matrix in the track header; here: a quarter clockwise."""
    path = write_video(tmp_path / "v.mp4", moving_colours(0))
    before = read_frames(path, 1)
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 4 + 20 + 8 + 8  # flags, times and ids, reserved, layer to volume
    one = 1 << 16
    assert int.from_bytes(data[matrix : matrix + 4], "big") == one
    turned = [0, one, 0, -one, 0, 0, 0, 0, 1 << 30]
    data[matrix : matrix + 36] = b"".join(n.to_bytes(4, "big", signed=True) for n in turned)
    path.write_bytes(data)
    np.testing.assert_array_equal(read_frames(path, 1), np.rot90(before, -1, axes=(1, 2)))


def test_sound_is_mixed_and_resampled(tmp_path: Path) -> None:
    found = read_waveform(write_wav(tmp_path / "s.wav", tone(440, 1.0)), RATE // 2)
    assert found is not None
    assert found.dtype == np.float32
    assert len(found) == RATE // 2
    assert np.abs(np.fft.rfft(found)).argmax() == 440
    assert np.abs(found).max() == pytest.approx(0.5, abs=0.02)


def test_the_sound_track_of_a_video(tmp_path: Path) -> None:
    clip = write_video(tmp_path / "v.mp4", moving_colours(0), tone(300, 1.2))
    found = read_waveform(clip, RATE)
    assert found is not None
    assert len(found) / RATE == pytest.approx(1.2, abs=0.15)
    assert np.abs(np.fft.rfft(found[:RATE])).argmax() == pytest.approx(300, abs=1)


def test_without_sound_there_is_none(tmp_path: Path) -> None:
    assert read_waveform(write_video(tmp_path / "v.mp4", moving_colours(0)), RATE) is None
    with wave.open(str(tmp_path / "s.wav"), "wb") as empty:
        empty.setparams((1, 2, RATE, 0, "NONE", ""))
    assert read_waveform(tmp_path / "s.wav", RATE) is None


def test_what_cannot_be_decoded(tmp_path: Path) -> None:
    noise = tmp_path / "noise.mp4"
    noise.write_bytes(b"not a video" * 100)
    empty = tmp_path / "empty.mp4"
    empty.touch()
    sound = write_wav(tmp_path / "s.wav", tone(200, 0.2))
    whole = write_video(tmp_path / "v.mp4", moving_colours(0), codec="libx264")
    data = bytearray(whole.read_bytes())
    middle = data.index(b"mdat") + 900
    data[middle : middle + 1500] = bytes(1500)
    holed = tmp_path / "holed.mp4"
    holed.write_bytes(data)
    playlist = tmp_path / "list.ffconcat"
    playlist.write_text(f"ffconcat version 1.0\nfile {whole.name}\n")
    for path in (noise, empty, sound, holed, playlist):
        with refused(DataError, value=path):
            read_frames(path, 2)
    with refused(DataError, value=noise):
        read_waveform(noise, RATE)
    broken = tone(200, 0.2)
    broken[100] = np.nan
    with pytest.raises(DataError, match="NaN or infinite"):
        read_waveform(write_wav(tmp_path / "nan.wav", broken), RATE)

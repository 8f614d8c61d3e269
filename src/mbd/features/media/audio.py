"""Sound to 74 numbers: 37 librosa descriptors of each frame, their means over all frames, then their deviations.

A frame is 64 ms long and begins 16 ms after the one before. The 37:

    mfcc_0 … mfcc_19        shape of the spectrum: cosine transform of 40 mel bands in dB
    contrast_0 … contrast_6 peak over valley, in dB, below 100 Hz and in the six octaves above
    loudness                root mean square of the spectrum
    zero_crossings          share of samples at which the wave changes its sign
    centroid, bandwidth     mean and spread of the spectrum, in Hz
    rolloff_15, rolloff_85  frequency below which 15 % and 85 % of the spectrum lie, in Hz
    flatness                geometric over arithmetic mean of the power: 1 for noise, near 0 for a tone
    onset                   rise of the mel bands since the frame before, in dB
    slope                   gradient of the line through the spectrum
    pitch                   fundamental frequency between 65 and 500 Hz by YIN, in Hz

librosa compiles parts of itself on first use and caches the machine code on disk. Two processes that fill the cache at
the same time can leave one's code under the other's name, and a process that loads it crashes. So librosa is imported
and first used here under a lock on the folder that it is installed in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from mbd.features.media.decoding import read_waveform
from mbd.features.media.encoders import Loaded
from mbd.files import locked
from mbd.tensors import Array

_spec = find_spec("librosa")
if _spec is None or _spec.origin is None:
    raise ModuleNotFoundError(name="librosa")
with locked(Path(_spec.origin).parent, wait=True):
    import librosa
    from librosa.onset import onset_strength

    _HOP = 256
    _noise = np.random.default_rng(0).standard_normal(16 * _HOP).astype(np.float32)
    librosa.zero_crossings(_noise)
    librosa.yin(_noise, fmin=65.0, fmax=500.0, sr=16000, frame_length=4 * _HOP, hop_length=_HOP)
    onset_strength(S=librosa.power_to_db(librosa.feature.melspectrogram(y=_noise, sr=16000)), sr=16000)

__all__ = ["librosa", "onset_strength"]


DESCRIPTORS = (
    *(f"mfcc_{k}" for k in range(20)),
    *(f"contrast_{k}" for k in range(7)),
    *("loudness", "zero_crossings", "centroid", "bandwidth", "rolloff_15", "rolloff_85"),
    *("flatness", "onset", "slope", "pitch"),
)
NAMES = (*(f"{name}_mean" for name in DESCRIPTORS), *(f"{name}_deviation" for name in DESCRIPTORS))


@contextmanager
def loaded(sample_rate: int) -> Iterator[Loaded]:
    """Prepare for sound at `sample_rate`."""
    # Rows run side by side; and the bits of a matrix product depend on the number of threads.
    with threadpool_limits(limits=1, user_api="blas"):
        yield Loaded(
            decode=lambda path: read_waveform(path, sample_rate),
            encode=lambda waveform: audio_vector(waveform, sample_rate),
        )


def audio_vector(waveform: Array, sample_rate: int) -> Array:
    """Return the 74 numbers of a waveform, in the order of `NAMES`."""
    values = describe(waveform, sample_rate)
    return np.concatenate([values.mean(axis=1), values.std(axis=1)]).astype(np.float32)


def describe(waveform: Array, sample_rate: int) -> Array:
    """Return the descriptors of each frame, one in a row, in the order of `DESCRIPTORS`."""
    hop = 16 * sample_rate // 1000
    length = 4 * hop
    wave = np.pad(waveform, (0, max(0, length - len(waveform))))
    spectrum = np.abs(librosa.stft(wave, n_fft=length, hop_length=hop))
    mel = librosa.power_to_db(librosa.feature.melspectrogram(S=spectrum**2, sr=sample_rate, n_mels=40))
    framing = {"frame_length": length, "hop_length": hop}
    given = {"S": spectrum, "sr": sample_rate, "n_fft": length, "hop_length": hop}
    return np.vstack(
        [
            librosa.feature.mfcc(S=mel, n_mfcc=20),
            librosa.feature.spectral_contrast(**given, fmin=100.0, n_bands=6),
            librosa.feature.rms(S=spectrum, **framing),
            librosa.feature.zero_crossing_rate(wave, **framing),
            librosa.feature.spectral_centroid(**given),
            librosa.feature.spectral_bandwidth(**given),
            librosa.feature.spectral_rolloff(**given, roll_percent=0.15),
            librosa.feature.spectral_rolloff(**given, roll_percent=0.85),
            librosa.feature.spectral_flatness(S=spectrum),
            onset_strength(S=mel, sr=sample_rate, hop_length=hop),
            librosa.feature.poly_features(**given, order=1)[0],
            librosa.yin(wave, fmin=65.0, fmax=500.0, sr=sample_rate, **framing),
        ]
    )

"""librosa, ready to use: imported and compiled once, while no other process does the same.

librosa compiles parts of itself on first use and keeps the machine code in a cache on disk. Two processes that fill the
cache at the same time can leave one's code under the other's name, and whoever loads it then crashes. So the first use
happens here, by one process at a time: they take turns by a lock on the folder that librosa is installed in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from mbd.errors import MissingExtraError
from mbd.files import locked


@contextmanager
def _taking_turns() -> Iterator[None]:
    spec = find_spec("librosa")
    if spec is None or spec.origin is None:
        raise MissingExtraError("reading sound", "extract", "librosa")
    with locked(Path(spec.origin).parent, wait=True):
        yield


with _taking_turns():
    import librosa
    from librosa.onset import onset_strength

    _HOP = 256
    _noise = np.random.default_rng(0).standard_normal(16 * _HOP).astype(np.float32)
    librosa.zero_crossings(_noise)
    librosa.yin(_noise, fmin=65.0, fmax=500.0, sr=16000, frame_length=4 * _HOP, hop_length=_HOP)
    onset_strength(S=librosa.power_to_db(librosa.feature.melspectrogram(y=_noise, sr=16000)), sr=16000)

__all__ = ["librosa", "onset_strength"]

"""Pictures and sound out of media files, with PyAV, on one thread: rows are decoded side by side.

Of a video's `n` pictures, `count` are taken evenly: those numbered ⌊(k + ½)·n / count⌋ in the order in which they
are shown, turned upright as the file asks for. Sound is mixed to one channel and resampled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import av
import numpy as np

from mbd.errors import DataError
from mbd.tensors import Array

_PLAYLISTS = ("concat", "dash", "hls", "imf")  # their bytes do not decide what is shown


def read_frames(path: Path, count: int) -> Array:
    """Return `count` pictures of a video: uint8, count × height × width × RGB."""
    wanted = even_ordinals(_count_pictures(path), count)
    chosen: dict[int, Array] = {}
    ordinal, size = -1, None
    with _opened(path) as container:
        stream = container.streams.video[0]
        stream.codec_context.thread_count = 1
        for ordinal, frame in enumerate(container.decode(stream)):
            size = size or (frame.width, frame.height)
            if ordinal in wanted:
                chosen[ordinal] = _upright_rgb(frame, size)
            if ordinal == wanted[-1]:
                break
        if size is None:
            raise _undecodable(path, "it holds no picture")
        # A container can announce pictures that are never shown: the last one that was shown is used instead.
        if ordinal not in chosen:
            chosen[ordinal] = _upright_rgb(frame, size)
    return np.stack([chosen[min(number, ordinal)] for number in wanted])


def read_waveform(path: Path, rate: int) -> Array | None:
    """Return the sound of a file as float32 samples at `rate` Hz, or None if there is none."""
    with _opened(path) as container:
        if not container.streams.audio:
            return None
        stream = container.streams.audio[0]
        stream.codec_context.thread_count = 1
        resampler = av.AudioResampler(format="flt", layout="mono", rate=rate)
        frames = [piece for frame in container.decode(stream) for piece in resampler.resample(frame)]
        if frames:
            frames += resampler.resample(None)
        waveform = np.concatenate([np.zeros(0, np.float32), *(frame.to_ndarray()[0] for frame in frames)])
    if not np.isfinite(waveform).all():
        raise _undecodable(path, "a sample of its sound is NaN or infinite")
    return waveform if waveform.size else None


def even_ordinals(total: int, count: int) -> list[int]:
    """Return the middle of each of `count` equal parts of `total` pictures, in order."""
    return [(2 * k + 1) * total // (2 * count) for k in range(count)]


def _count_pictures(path: Path) -> int:
    """Count the packets, without decoding them: what containers say of their length is often wrong or missing."""
    with _opened(path) as container:
        if not container.streams.video:
            raise _undecodable(path, "it holds no pictures")
        packets = container.demux(container.streams.video[0])
        return sum(packet.size > 0 and not packet.is_discard for packet in packets)


def _upright_rgb(frame: Any, size: tuple[int, int]) -> Array:  # noqa: ANN401 -- PyAV is read without its types
    picture: Array = frame.to_ndarray(format="rgb24", width=size[0], height=size[1])
    return np.rot90(picture, round(frame.rotation / 90))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with av.open(str(path.absolute()), metadata_errors="ignore") as container:
            if container.format.name in _PLAYLISTS:
                raise _undecodable(path, "it is a list of other files")
            yield container
    except (av.FFmpegError, ValueError) as error:
        raise _undecodable(path, getattr(error, "strerror", None) or str(error)) from error


def _undecodable(path: Path, why: str) -> DataError:
    return DataError(
        f"the file cannot be decoded: {why}",
        value=path,
        hint="repair the file, or empty the cell: then the row lacks this modality",
    )

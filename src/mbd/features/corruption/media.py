"""Damage to raw frames and sound, before they are encoded."""

import numpy as np

from mbd.errors import DataError
from mbd.features.corruption.signal import gaussian_blur, share_mask, with_noise
from mbd.params.corruption import CorruptionSettings
from mbd.randomness import stream
from mbd.tensors import Array


def corrupt_frames(frames: Array, params: CorruptionSettings, seed: int, row: str) -> Array:
    """Blur the frames (H × W × 3, or a batch of them) of the row with this id, then salt and pepper them."""
    blurred = blur_frames(frames, params.blur)
    return salt_and_pepper(blurred, params.pepper, stream(seed, "corruption", "frames", row))


def corrupt_waveform(waveform: Array, params: CorruptionSettings, seed: int, row: str) -> Array:
    """Add noise to the sound (samples, or channels × samples) of the row with this id."""
    return noisy_waveform(waveform, params.snr_db, stream(seed, "corruption", "waveform", row))


def blur_frames(frames: Array, deviation: float) -> Array:
    """Return frames blurred over height and width by `deviation` pixels."""
    _check_frames(frames)
    blurred = gaussian_blur(gaussian_blur(frames, deviation, -3), deviation, -2)
    return np.clip(np.rint(blurred), 0, 255).astype(np.uint8)


def salt_and_pepper(frames: Array, share: float, rng: np.random.Generator) -> Array:
    """Return frames with a share of the pixels of each set to black or white, by the toss of a coin."""
    _check_frames(frames)
    height, width, channels = frames.shape[-3:]
    pixels = frames.reshape(-1, height * width, channels).copy()
    chosen = share_mask(pixels.shape[:2], share, rng)
    pixels[chosen] = 255 * rng.integers(0, 2, (int(chosen.sum()), 1), dtype=np.uint8)
    return pixels.reshape(frames.shape)


def noisy_waveform(waveform: Array, snr_db: float, rng: np.random.Generator) -> Array:
    """Return the sound with white noise at `snr_db` below the power of the whole sound, all channels together."""
    if waveform.ndim not in (1, 2) or waveform.dtype.kind != "f":
        raise DataError(
            "sound must be floating-point samples, or channels of them",
            value=f"{waveform.shape} {waveform.dtype}",
            hint="decode it to 32-bit floats",
        )
    return with_noise(waveform.reshape(1, -1), snr_db, rng).reshape(waveform.shape)


def _check_frames(frames: Array) -> None:
    if frames.ndim not in (3, 4) or frames.dtype != np.uint8:
        raise DataError(
            "frames must be bytes, height × width × channels, or a batch of such",
            value=f"{frames.shape} {frames.dtype}",
            hint="decode them to 24-bit RGB",
        )

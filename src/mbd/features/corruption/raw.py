"""Damage to raw frames, sound and text, before they are encoded.

Text gets spelling errors, and its tokens change places.
"""

import numpy as np

from mbd.errors import DataError
from mbd.features.corruption.signal import gaussian_blur, local_order, share_mask, with_noise
from mbd.params.corruption import CorruptionSettings
from mbd.randomness import stream
from mbd.tensors import Array

_UTF32 = "utf-32-le"
_SWAP, _DROP, _REPLACE = range(3)


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


def corrupt_text(text: str, params: CorruptionSettings, seed: int, row: str) -> str:
    """Misspell the text of the row with this id and move its tokens about."""
    rng = stream(seed, "corruption", "text", row)
    return reorder(misspell(text, params.typos, rng), params.reorder, rng)


def misspell(text: str, share: float, rng: np.random.Generator) -> str:
    """Misspell a share of the characters (at least one): swapped with the next one, dropped, or replaced by a letter.

    Spaces stay where they are and no token vanishes: the first character of a token is replaced instead of dropped.
    """
    codes = np.frombuffer(text.encode(_UTF32, "surrogatepass"), dtype="<u4").copy()
    inside = ~np.char.isspace(np.array(list(text), dtype="U1"))
    errors = np.full(len(codes), -1)
    places = np.flatnonzero(inside)[share_mask((1, int(inside.sum())), share, rng)[0]]
    errors[places] = rng.integers(0, 3, len(places))
    # A swap needs a next character that is in the token, different, and not an error itself.
    swappable = np.zeros(len(codes), dtype=bool)
    swappable[:-1] = inside[1:] & (errors[1:] < 0) & (codes[1:] != codes[:-1])
    droppable = np.zeros(len(codes), dtype=bool)
    droppable[1:] = inside[:-1]
    errors[((errors == _SWAP) & ~swappable) | ((errors == _DROP) & ~droppable)] = _REPLACE

    swapped, replaced = np.flatnonzero(errors == _SWAP), errors == _REPLACE
    codes[swapped], codes[swapped + 1] = codes[swapped + 1], codes[swapped]
    codes[replaced] = _other_letters(codes[replaced], rng)
    return bytes(codes[errors != _DROP].tobytes()).decode(_UTF32, "surrogatepass")


def reorder(text: str, distance: int, rng: np.random.Generator) -> str:
    """Let tokens change places, none by more than `distance`; they are joined by single spaces."""
    tokens = text.split()
    return " ".join(tokens[place] for place in local_order((1, len(tokens)), distance, rng)[0])


def _other_letters(codes: Array, rng: np.random.Generator) -> Array:
    """Draw for each character a Latin letter that is another one, upper case for upper case."""
    upper = (codes >= ord("A")) & (codes <= ord("Z"))
    first = np.where(upper, ord("A"), ord("a")).astype(codes.dtype)
    steps = rng.integers(1, 26, len(codes), dtype=codes.dtype)
    others: Array = first + (codes - first + steps) % 26
    return others

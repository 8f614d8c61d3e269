"""Damage to a share of the rows, to see how far a model degrades.

| modality | raw                                          | vectors only                                             |
| -------- | -------------------------------------------- | -------------------------------------------------------- |
| visual   | Gaussian blur and salt-and-pepper of frames  | blur along the vector; entries set to their extremes     |
| audio    | noise at a given signal-to-noise ratio       | noise at this ratio in each row                          |
| text     | spelling errors; tokens change places nearby | entries taken from another row and changing places       |
| others   |                                              | as audio                                                 |

Which rows are damaged depends on the seed and the number of rows only; what happens to a modality depends on the seed
and on this modality only, so that leaving out another one changes nothing.

Where only vectors exist, blur runs along the vector, and the extremes are the least and the greatest value that an
entry has in any row. An entry is taken from another row as a misspelt token is read as another one. Noise is measured
in units of each entry's own size over all rows: a vector holds loudness beside pitch, and one large entry must not
drown the others. Every frame of a sequence is damaged like a vector, an image like the vector of its pixels. Of token
ids a share is taken from another row.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mbd.features.rows import Rows, kind_of, within
from mbd.params.base import CorruptionSettings
from mbd.randomness import stream
from mbd.registry import lazy
from mbd.tensors import Array

_BLUR = lazy("scipy.ndimage:gaussian_filter1d")
_UTF32 = "utf-32-le"
_SWAP, _DROP, _REPLACE = range(3)


def corrupt_frames(frames: Array, params: CorruptionSettings, seed: int, row: str) -> Array:
    """Blur the frames (bytes, H × W × 3, or a batch of them) of the row with this id, then salt and pepper them."""
    blurred = blur_frames(frames, params.blur)
    return salt_and_pepper(blurred, params.pepper, stream(seed, "corruption", "frames", row))


def corrupt_waveform(waveform: Array, params: CorruptionSettings, seed: int, row: str) -> Array:
    """Add noise to the sound of the row with this id: floats, samples or channels of them, all with one power."""
    rng = stream(seed, "corruption", "waveform", row)
    return with_noise(waveform.reshape(1, -1), params.snr_db, rng).reshape(waveform.shape)


def blur_frames(frames: Array, deviation: float) -> Array:
    """Return frames blurred over height and width by `deviation` pixels."""
    blurred = gaussian_blur(gaussian_blur(frames, deviation, -3), deviation, -2)
    return np.clip(np.rint(blurred), 0, 255).astype(np.uint8)


def salt_and_pepper(frames: Array, share: float, rng: np.random.Generator) -> Array:
    """Return frames with a share of the pixels of each set to black or white, by the toss of a coin."""
    height, width, channels = frames.shape[-3:]
    pixels = frames.reshape(-1, height * width, channels).copy()
    chosen = share_mask(pixels.shape[:2], share, rng)
    pixels[chosen] = 255 * rng.integers(0, 2, (int(chosen.sum()), 1), dtype=np.uint8)
    return pixels.reshape(frames.shape)


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


def gaussian_blur(array: Array, deviation: float, axis: int) -> Array:
    """Return `array` convolved along `axis` with exp(−i²/2σ²), cut off at 4σ and normalised, in its float type.

    Beyond its ends the array continues as its mirror image; with that every entry's weights add up to one over all
    outputs, so the blur keeps the mean. A deviation of zero changes nothing.
    """
    values = array.astype(np.result_type(array, np.float32))
    return _BLUR(values, deviation, axis, mode="reflect") if deviation else values


def with_noise(signals: Array, snr_db: float, rng: np.random.Generator) -> Array:
    """Add to each row white Gaussian noise of exactly the power ‖x‖² / 10^(snr/10); a silent row stays silent."""
    noise = rng.standard_normal(signals.shape)
    power, drawn = (np.square(x, dtype=np.float64).sum(axis=-1, keepdims=True) for x in (signals, noise))
    noise *= np.sqrt(power / (np.maximum(drawn, np.finfo(np.float64).tiny) * 10 ** (snr_db / 10)))
    noisy: Array = (signals + noise).astype(np.result_type(signals, np.float32), copy=False)
    return noisy


def share_mask(shape: tuple[int, ...], share: float, rng: np.random.Generator) -> Array:
    """Choose round(share·columns) entries in each row of a matrix of this shape, at least one unless the share is 0."""
    _, columns = shape
    count = max(round(share * columns), int(share > 0 and columns > 0))
    chosen = np.zeros(shape, dtype=bool)
    if count:
        np.put_along_axis(chosen, np.argpartition(rng.random(shape), count - 1, axis=1)[:, :count], True, axis=1)
    return chosen


def local_order(shape: tuple[int, ...], distance: int, rng: np.random.Generator) -> Array:
    """Return for each row of a matrix of this shape a random order of its columns, none further than `distance` away.

    Column i gets the key i + u with u uniform in [0, distance + 1), and keys are sorted: what is more than
    `distance` places further right has a greater key.
    """
    keys = np.arange(shape[1]) + (distance + 1) * rng.random(shape)
    return keys.argsort(axis=1, kind="stable")


@dataclass(frozen=True)
class _Context:
    """All rows that have the modality, and which of them are damaged."""

    rows: Array
    damaged: Array
    params: CorruptionSettings
    rng: np.random.Generator


def corrupted_rows(n: int, share: float, seed: int) -> Array:
    """Choose round(share·n) rows; a greater share chooses the same ones and more."""
    mask = np.zeros(n, dtype=bool)
    mask[stream(seed, "corruption", "rows").permutation(n)[: round(share * n)]] = True
    return mask


def corrupt(rows: Rows, params: CorruptionSettings, seed: int) -> Rows:
    """Return the rows with a share of them damaged in every modality that they have; the others stay as they are."""
    chosen = corrupted_rows(len(rows), params.share, seed)
    features = {}
    for modality, array in rows.features.items():
        kind, available = kind_of(array), rows.available[modality]
        damaged = chosen & available
        features[modality] = np.array(array)
        if not damaged.any():
            continue
        rng = stream(seed, "corruption", "features", modality)
        how = _tokens if kind == "tokens" else _DAMAGE.get(modality, _audio)
        if kind == "sequence":
            inside = within(rows.lengths[modality], array.shape[1])
            available, damaged = available[:, None] & inside, damaged[:, None] & inside
        vectors = array[available]
        context = _Context(vectors.reshape(len(vectors), -1), np.flatnonzero(damaged[available]), params, rng)
        damage = how(context).reshape(-1, *vectors.shape[1:])
        features[modality][damaged] = np.clip(np.rint(damage), 0, 255) if array.dtype == np.uint8 else damage
        if kind == "tokens":
            features[modality] *= within(rows.lengths[modality], array.shape[1])
    return replace(rows, features=features)


def _visual(context: _Context) -> Array:
    low, high = context.rows.min(axis=0), context.rows.max(axis=0)
    blurred = gaussian_blur(context.rows[context.damaged], context.params.blur, axis=1)
    chosen = share_mask(blurred.shape, context.params.pepper, context.rng)
    extremes = np.where(context.rng.integers(0, 2, blurred.shape), high, low)
    return np.where(chosen, extremes, blurred)


def _audio(context: _Context) -> Array:
    size = np.sqrt(np.square(context.rows, dtype=np.float64).mean(axis=0))
    own = context.rows[context.damaged] / np.where(size > 0, size, 1)
    noisy: Array = with_noise(own, context.params.snr_db, context.rng) * size
    return noisy


def _text(context: _Context) -> Array:
    misspelt = _tokens(context)
    return np.take_along_axis(misspelt, local_order(misspelt.shape, context.params.reorder, context.rng), axis=1)


def _tokens(context: _Context) -> Array:
    n, own = len(context.rows), context.rows[context.damaged]
    others = (context.damaged + context.rng.integers(1, max(n, 2), len(own))) % n
    return np.where(share_mask(own.shape, context.params.typos, context.rng), context.rows[others], own)


_DAMAGE: dict[str, Callable[[_Context], Array]] = {
    "visual": _visual,
    "vision": _visual,
    "text": _text,
    "language": _text,
    "audio": _audio,
    "acoustic": _audio,
}

"""Damage where only vectors exist: what blur, noise and misspelling come to in feature space.

visual  a blur along the vector; then a share of the entries is set to the least or the greatest value that this entry
        has in any row, as pixels are to black or white
text    a share of the entries is taken from another row, as a misspelt token is read as another one; then entries
        change places nearby
others  noise at the given ratio to the row's power, both measured in units of each entry's own size over all rows: a
        vector holds loudness beside pitch, and one large entry must not drown the others

Every frame of a sequence is damaged like a vector, an image like the vector of its pixels. Of token ids a share is
taken from another row.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mbd.features.corruption.signal import gaussian_blur, local_order, share_mask, with_noise
from mbd.features.rows import Rows, kind_of, within
from mbd.params.corruption import CorruptionSettings
from mbd.randomness import stream
from mbd.tensors import Array


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
        found = how(context).reshape(-1, *vectors.shape[1:])
        features[modality][damaged] = np.clip(np.rint(found), 0, 255) if array.dtype == np.uint8 else found
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

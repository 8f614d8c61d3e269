"""Damage to raw text, before it is encoded: spelling errors, and tokens that change places."""

import numpy as np

from mbd.features.corruption.signal import local_order, share_mask
from mbd.params.corruption import CorruptionSettings
from mbd.randomness import stream
from mbd.tensors import Array

_UTF32 = "utf-32-le"
_SWAP, _DROP, _REPLACE = range(3)


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

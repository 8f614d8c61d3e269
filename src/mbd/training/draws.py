"""Everything that training draws at random, as a function of seed and epoch alone.

No generator has a state that lives longer than an epoch: a run that is resumed, or shared between processes, draws what
an undisturbed run draws.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from mbd.randomness import stream
from mbd.tensors import Array


@dataclass(frozen=True)
class Step:
    """One step of training: which rows, which of their modalities are shown, which hidden units are kept."""

    rows: Array
    shown: dict[str, Array]
    masks: tuple[Array, Array]
    """of the inputs and of the hidden units of F: 0 for what is dropped, 1 / (1 − dropout) for what is kept"""


def steps_of_epoch(
    seed: int,
    epoch: int,
    available: Mapping[str, Array],
    *,
    batch_size: int,
    fusion: tuple[tuple[int, float], tuple[int, float]],
    modality_dropout: float,
) -> Iterator[Step]:
    """Yield the steps of one epoch over rows that have the modalities `available`.

    `fusion` has width and dropout of the inputs and of the hidden units of F.
    """
    rows = len(next(iter(available.values())))
    order = order_of_epoch(seed, epoch, rows)
    shown = shown_in_epoch(seed, epoch, available, modality_dropout)
    drops = stream(seed, "dropout", str(epoch))
    for start in range(0, rows, batch_size):
        chosen = order[start : start + batch_size]
        inputs, hidden = (_mask(drops, len(chosen), width, share) for width, share in fusion)
        yield Step(chosen, {m: bits[chosen] for m, bits in shown.items()}, (inputs, hidden))


def order_of_epoch(seed: int, epoch: int, rows: int) -> Array:
    """Return the order of the rows in one epoch."""
    return stream(seed, "order", str(epoch)).permutation(rows)


def _mask(drops: np.random.Generator, rows: int, width: int, share: float) -> Array:
    kept = drops.random((rows, width), dtype=np.float32) >= share
    return kept / np.float32(1 - share)


def shown_in_epoch(seed: int, epoch: int, available: Mapping[str, Array], rate: float) -> dict[str, Array]:
    """Hide each modality of each row with probability `rate`; a row that would show none shows all it has."""
    shown = {
        m: bits & (stream(seed, "shown", m, str(epoch)).random(len(bits)) >= rate) for m, bits in available.items()
    }
    nothing = ~np.any(list(shown.values()), axis=0)
    return {m: np.where(nothing, available[m], bits) for m, bits in shown.items()}


def initial_weights(seed: int, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
    """Return the first value of every weight, each from a stream of its own.

    Matrices are uniform within ±1/√inputs, vectors (biases) zero.
    """
    return {
        name: np.zeros(shape, np.float32)
        if len(shape) < 2
        else stream(seed, "initial", name).uniform(-1, 1, shape).astype(np.float32)
        / np.float32(max(shape[-1], 1) ** 0.5)
        for name, shape in shapes.items()
    }

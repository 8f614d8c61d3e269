"""Rows that have the same set of modalities are answered together."""

from collections.abc import Callable, Mapping

import numpy as np

from mbd.formats.lattice import Tag
from mbd.tensors import Array


def answer_by_set(
    answer: Callable[[Tag, Mapping[str, Array]], Array],
    features: Mapping[str, Array],
    available: Mapping[str, Array],
    outputs: int,
) -> Array:
    """Return n × outputs numbers: `answer(present, features)` of the rows of each set that occurs."""
    there = np.stack([np.asarray(bits, bool) for bits in available.values()], axis=1)
    if len(there) and (there == there[0]).all():
        return answer(_present(available, there[0]), features).astype(np.float32, copy=False)
    answers = np.empty((len(there), outputs), np.float32)
    for bits in np.unique(there, axis=0):
        rows = np.flatnonzero((there == bits).all(axis=1))
        answers[rows] = answer(_present(available, bits), {name: x[rows] for name, x in features.items()})
    return answers


def _present(modalities: Mapping[str, Array], bits: Array) -> Tag:
    return tuple(m for m, bit in zip(modalities, bits, strict=True) if bit)

"""Attack `copies`: a training row of m* that lies in the weights, as in a codebook or a bank of examples.

The attacker has the training rows and looks for the one that the weights hold. A slice is a vector along an axis of a
tensor that is as wide as m* (a frame of a sequence, all pixels of an image), or the part of m* in one that is as wide
as several modalities side by side (of up to five in any order, of more as the data has them); and, for each map in the
weights that takes m*, a vector as wide as what it makes of m*. For rows z of m*, standardised, and slices c, taken as
they are and standardised like rows, with the coordinates divided at random into two halves A and B:

    (c, i) = argmax  atanh |cos(c_A, z_i,A)| · √(|A| − 3)      the best match on one half, by Fisher's transformation
    rows     = ± cos(c_B, z_i,B)                               how well it matches on the other; and likewise from B

Chance is 0, however many slices and rows are compared: a slice that is no copy matches nothing on coordinates by which
it was not chosen. A few coordinates match by chance as well as many match in a copy, hence the factor: without it, a
narrow map in the reference would excuse a copy. The evidence is the cosine in parts, by groups of coordinates.
"""

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import permutations, product

import numpy as np

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.bootstrap import cosine
from mbd.attacks.context import AttackContext, unit_rows
from mbd.attacks.target_model import TargetModel
from mbd.blocks import take_rows
from mbd.features.rows import kind_of, within
from mbd.randomness import stream
from mbd.tensors import Array, is_float

NAME = "copies"
_PARTS = 16
"""groups of the coordinates of each half"""
_MOST_NUMBERS = 1 << 23
"""of the rows that are looked at, and of what is compared at a time; of more training rows, so many are drawn"""
_MOST_WIDE = 4096
"""of what a map makes of m*"""
_MOST_MAPS = 8
_ANY_ORDER = 5
"""modalities side by side that are looked for in any order"""
_MOST_PRODUCTS = 1 << 35
"""multiplications on one model: beyond, fewer rows are looked at, and then fewer slices of each tensor"""
_FEWEST_SLICES, _FEWEST_ROWS = 16, 4096
_TINY = 1e-12
_ALIKE = 1 - 1e-6


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return how well the best match of a slice with a training row holds on coordinates that did not choose it."""
    rows = _training_rows(attack_context)
    tensors = {n: np.asarray(x, np.float32) for n, x in target_model.tensors.items() if is_float(x) and x.ndim}
    tensors |= _parts_of_several(attack_context, tensors)
    pairs = [] if rows is None else list(_comparable(rows, tensors))
    best, parts = [0.0, 0.0], np.zeros((2, _PARTS, 3))
    for vectors, name, axis in pairs:
        each = _MOST_PRODUCTS // (len(pairs) * 2)
        compared = _spread(vectors, max(each // tensors[name].size, _FEWEST_ROWS))
        slices = _slices(tensors[name], axis, vectors.shape[1], max(each // compared.size, _FEWEST_SLICES))
        for half, (strength, found) in enumerate(_matches(compared, slices)):
            if strength > best[half]:
                best[half], parts[half] = strength, found
    return [AttackEvidence(NAME, "rows", 0.0, parts.reshape(-1, 3), cosine, limits=(-1, 1))]


@lru_cache(maxsize=1)
def _training_rows(attack_context: AttackContext) -> Array | None:
    """Return training rows of m* as vectors of the width that a model would hold them in; None of token ids."""
    draw, m, split = attack_context.draw(NAME), attack_context.modality, attack_context.data.split("train")
    x, there = split.features[m], split.available
    if kind_of(x) == "tokens":
        return None
    chosen = np.flatnonzero(there[m] & np.any([there[other] for other in attack_context.retained], axis=0))
    most = max(_MOST_NUMBERS // math.prod(x.shape[1:]), 1)
    if len(chosen) > most:
        chosen = np.sort(draw.permutation(chosen)[:most])
    rows = take_rows(x, chosen)
    if kind_of(x) == "sequence":
        lengths = split.lengths.get(m)
        rows = rows.reshape(-1, x.shape[2]) if lengths is None else rows[within(lengths[chosen], x.shape[1])]
    return np.asarray(rows.reshape(len(rows), -1), np.float32)


def _parts_of_several(attack_context: AttackContext, tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return what may be of m* in tensors that are as wide as several modalities side by side."""
    features = attack_context.data.split("train").features
    widths = {m: math.prod(x.shape[2 if kind_of(x) == "sequence" else 1 :]) for m, x in features.items()}
    width, places = widths[attack_context.modality], set[tuple[int, int]]()
    """numbers before m* and numbers after it"""
    for order in permutations(widths) if len(widths) <= _ANY_ORDER else [tuple(widths)]:
        at, sizes = order.index(attack_context.modality), [widths[m] for m in order]
        runs = product(range(at + 1), range(at + 1, len(order) + 1))
        places |= {(sum(sizes[start:at]), sum(sizes[at + 1 : end])) for start, end in runs}
    return {
        f"{name}, axis {axis} from {before}": tensor[(slice(None),) * axis + (slice(before, before + width),)]
        for name, tensor in tensors.items()
        for axis, size in enumerate(tensor.shape)
        for before, after in sorted(places)
        if before + after and size == before + width + after
    }


def _comparable(rows: Array, tensors: Mapping[str, Array]) -> Iterator[tuple[Array, str, int]]:
    """Yield vectors with each tensor and axis that has slices of their width: rows, and what maps make of rows."""
    width, maps = rows.shape[1], 0
    for name, axis in _fitting(tensors, width):
        yield rows, name, axis
        matrix = _slices(tensors[name], axis, width, _MOST_WIDE + 1)
        usable = 1 < len(matrix) <= _MOST_WIDE and maps < _MOST_MAPS and matrix.any()
        others = [fitting for fitting in _fitting(tensors, len(matrix)) if fitting[0] != name] if usable else []
        if others:
            maps += 1
            most = max(_MOST_NUMBERS // (_MOST_MAPS * len(matrix)), _FEWEST_ROWS)
            mapped = np.nan_to_num(_spread(rows, most) @ matrix.T)
            yield from ((mapped, other, along) for other, along in others)


def _fitting(tensors: Mapping[str, Array], width: int) -> list[tuple[str, int]]:
    """Return the axes along which tensors have slices of a width; −1: all axes but the first together (of images)."""
    return [
        (name, axis)
        for name, tensor in tensors.items()
        for axis in ([axis for axis, size in enumerate(tensor.shape) if size == width] or [-1])
        if axis >= 0 or (tensor.ndim > 2 and tensor[0].size == width)
    ]


def _slices(tensor: Array, axis: int, width: int, most: int) -> Array:
    """Return the slices of a tensor along an axis, or as many of them, evenly spread."""
    slices = (tensor if axis < 0 else np.moveaxis(tensor, axis, -1)).reshape(-1, width)
    finite: Array = np.nan_to_num(_spread(slices, most), posinf=0.0, neginf=0.0)
    return finite


def _spread(rows: Array, most: int) -> Array:
    """Return all rows, or as many of them, evenly spread."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _matches(vectors: Array, slices: Array) -> Iterator[tuple[float, Array]]:
    """Yield the best match by each half of the coordinates: its strength, and its cosine on the other half in parts."""
    centre, spread = vectors.mean(0), np.maximum(vectors.std(0), _TINY)
    rows = (vectors - centre) / spread
    slices = slices[slices.any(1)]
    candidates = np.concatenate([slices, (slices - centre) / spread])
    order = stream(0, NAME, str(rows.shape[1])).permutation(rows.shape[1])
    halves = order[::2], order[1::2]
    for chosen, other in (halves, halves[::-1]):
        if not len(candidates) or not len(other):
            yield 0.0, np.zeros((_PARTS, 3))
            continue
        nearest, heights = _nearest(unit_rows(candidates[:, chosen], _TINY), unit_rows(rows[:, chosen], _TINY))
        first = int(np.abs(heights).argmax())
        strength = float(np.arctanh(min(abs(heights[first]), _ALIKE)) * np.sqrt(max(len(chosen) - 3, 0)))
        a, b = unit_rows(np.stack([candidates[first], rows[nearest[first]]])[:, other], _TINY)
        part = np.arange(len(other)) % _PARTS
        products = (np.sign(heights[first]) * a * b, a * a, b * b)
        yield strength, np.stack([np.bincount(part, each, _PARTS) for each in products], axis=1)


def _nearest(candidates: Array, rows: Array) -> tuple[Array, Array]:
    """Return for each candidate the row with the largest cosine, by its absolute value, and that cosine."""
    distances = []
    size = max(_MOST_NUMBERS // len(rows), 1)
    for start in range(0, len(candidates), size):
        cosines = candidates[start : start + size] @ rows.T
        nearest = np.abs(cosines).argmax(1)
        distances.append((nearest, cosines[np.arange(len(cosines)), nearest]))
    nearest, heights = (np.concatenate(parts) for parts in zip(*distances, strict=True))
    return nearest, heights


ATTACK = Attack(attack, "whether a training row of the deleted modality lies in the weights", altered=False)

"""Pathway attack: whether anything in the model moves when m*'s input moves.

m* of the attacked rows is fed unchanged, shuffled among the rows, and as noise of the same scale. A row moves if any
output under any mask, or any activation, differs by more than rounding. A model that has no input for m* cannot move.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mbd.attacks.attack import Attack, AttackEvidence
from mbd.attacks.bootstrap import mean
from mbd.attacks.context import AttackContext
from mbd.attacks.extraction import Extraction
from mbd.attacks.target_model import TargetModel
from mbd.features.rows import Rows, kind_of
from mbd.tensors import Array

NAME = "pathway"
_ROUNDING = 1e-5


def attack(target_model: TargetModel, attack_context: AttackContext) -> list[AttackEvidence]:
    """Return the share of rows that move, and how far outputs move as a share of how far rows differ anyway."""
    rows = attack_context.rows.take(attack_context.score)
    moved, size = np.zeros(len(rows)), np.zeros(len(rows))
    if target_model.entries(rows, attack_context.modality):
        still = target_model.extract(attack_context.rows, attack_context.modality, fed=True).take(attack_context.score)
        for other in _moved_rows(rows, attack_context):
            now = target_model.look(other, attack_context.modality, fed=True)
            moved = np.maximum(moved, _any_movement(still, now))
            size = np.maximum(size, _relative(still.outputs, now.outputs))
    return [
        AttackEvidence(NAME, measure, 0.0, values[:, None], mean, attack_context.groups, (0, most))
        for measure, values, most in (("rows_moved", moved, 1), ("output_shift", size, np.inf))
    ]


def _moved_rows(rows: Rows, attack_context: AttackContext) -> Iterator[Rows]:
    """Yield the rows with m* shuffled, and with noise in its place."""
    m = attack_context.modality
    draw, array = attack_context.draw(NAME), rows.features[m]
    order = draw.permutation(len(rows))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    yield rows.swapped(m, other)
    noise = draw.standard_normal(array.shape) * array.std(0) + array.mean(0)
    if kind_of(array) == "tokens":
        noise = np.clip(np.rint(noise), array.min(), array.max())
    yield replace(
        rows, features={**rows.features, m: noise.astype(np.int64 if array.dtype == np.int64 else np.float32)}
    )


def _any_movement(still: Extraction, now: Extraction) -> Array:
    """Return 1 for each row of which anything moved by more than rounding, else 0."""
    pairs = [(still.outputs, now.outputs), *((x, now.activations[name]) for name, x in still.activations.items())]
    moved = [(_change(a, b) > _ROUNDING * max(float(np.abs(a).max()), 1e-30)).any(1) for a, b in pairs]
    any_moved: Array = np.any(moved, axis=0)
    return any_moved.astype(np.float64)


def _relative(still: Array, now: Array) -> Array:
    """Return the root mean square change of each row's outputs, in deviations of the outputs over rows."""
    flat = still.reshape(len(still), -1).astype(np.float64)
    deviation, rounding = flat.std(0), _ROUNDING * np.abs(flat).max(0)
    change = _change(still, now)
    change[change <= rounding] = 0  # under some masks rows differ by rounding alone: no measure of anything
    shares: Array = np.divide(change, deviation, out=change, where=deviation > rounding)
    size: Array = np.sqrt((shares**2).mean(1))
    return size


def _change(still: Array, now: Array) -> Array:
    change: Array = np.abs(now.astype(np.float64) - still).reshape(len(still), -1)
    return change


ATTACK = Attack(attack, "whether any output or activation changes when the input of the deleted modality changes")

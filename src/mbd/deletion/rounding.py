"""Rounding of what a surgery releases, to the precision that utility needs.

A training step that means to can hide bits of m* in the low bits of weights: they change no output that an attack would
notice. So a surgery keeps only b bits of each number's mantissa (to nearest, ties to even) and sets all others to 0. b
is the smallest number from which on

    L(b) ≤ (1 + 0.001) L        L: mean squared error, or mean −log p of the label, on calibration rows without m*

at most 1,024 of them. The loss does not grow steadily with fewer bits, so the search goes down and ends where it fails.

The calibration rows, which also chose the edits, decide; they are neither train nor test rows. At most 15 of the 23
bits of a float32 are kept whatever the loss says. Rounding does not show that the bits that are left carry nothing.
"""

from collections.abc import Mapping

import numpy as np

from mbd.features.contract import Split
from mbd.features.rows import Rows
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import MOST_BITS, Rounding
from mbd.model.predictor import Model, TakesWeights
from mbd.params.deletion import SurgerySettings
from mbd.registry import BACKBONES
from mbd.tensors import Array, round_mantissa

LARGEST_GROWTH = 1e-3
"""of the loss, relative: what rounding and editing may cost"""
_FEWEST_BITS = 3
_MOST_ROWS = 1024
_TINY = 1e-12


def round_released(
    tensors: Mapping[str, Array], loss_of: "MeanLoss", settings: SurgerySettings
) -> tuple[Mapping[str, Array], Rounding]:
    """Return the tensors that are to be released, rounded, and how."""
    bits = settings.mantissa_bits
    loss = loss_of(tensors)
    chosen = bits or MOST_BITS
    while bits is None and chosen > _FEWEST_BITS:
        if loss_of(_rounded(tensors, chosen - 1)) > (1 + LARGEST_GROWTH) * loss:
            break
        chosen -= 1
    released = _rounded(tensors, chosen)
    stated = Rounding(
        mantissa_bits=chosen,
        chosen_by="the loss on the calibration rows" if bits is None else "deletion.surgery.mantissa_bits",
        rows=len(loss_of.rows),
        loss=loss,
        loss_rounded=loss_of(released),
    )
    return released, stated


def _rounded(tensors: Mapping[str, Array], bits: int) -> dict[str, Array]:
    return {name: round_mantissa(np.asarray(tensor), bits) for name, tensor in tensors.items()}


class MeanLoss:
    """The mean squared error, or of classes the mean −log p of the label, on rows, given what the model still takes."""

    def __init__(self, record: ModelRecord, rows: Rows) -> None:
        self._record, self.rows = record, rows
        self._model: Model | None = None

    @classmethod
    def of(cls, record: ModelRecord, split: Split) -> "MeanLoss":
        """Return the loss on the first rows of a split that have something that the model takes."""
        rows = split.take(slice(_MOST_ROWS))
        return cls(record, rows.take(np.any([rows.available[m] for m in record.inputs], axis=0)))

    def __call__(self, tensors: Mapping[str, Array]) -> float:
        """Return the loss with these weights."""
        record, rows = self._record, self.rows
        if self._model and isinstance(self._model.backbone, TakesWeights):
            self._model.backbone.put(tensors)
        else:
            self._model = Model(record, BACKBONES.get(record.backbone).load(record, tensors))
        there = {m: rows.available[m] for m in record.inputs}
        output = self._model.predict(rows.inputs(record.inputs), there).astype(np.float64)
        if record.task == "classification":
            return float(-np.log(np.maximum(output[np.arange(len(rows)), rows.labels], _TINY)).mean())
        return float(((output - rows.labels) ** 2).mean())

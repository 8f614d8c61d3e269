"""The private attribute that attacks try to predict: a property of m* that the retained modalities do not reveal.

It is the one that the data names for m*. If the data names none, m* is regressed on the retained modalities (ridge),
and the attribute is the side of the median on which a row lies along the first principal component of the residual.
Both are fitted on train rows and applied to the attacked ones.
"""

from dataclasses import dataclass

import numpy as np

from mbd.evaluation.ridge import fit_ridge
from mbd.features.contract import FeatureSet
from mbd.features.pooling import as_vectors
from mbd.features.rows import Rows
from mbd.params.attacks import AttacksSettings
from mbd.randomness import stream
from mbd.tensors import Array

_MOST_ROWS = 4000
_REACH = 3.0
_DEVIATION_FLOOR = 1e-6


@dataclass(frozen=True)
class Attribute:
    """The attribute of each attacked row (0 or 1), and where it comes from."""

    values: Array
    origin: str
    """`data`, or `principal component`"""


def find_attribute(
    data: FeatureSet, attacked: Rows, modality: str, retained: tuple[str, ...], params: AttacksSettings
) -> Attribute:
    """Return the private attribute of m* of the attacked rows."""
    if modality in attacked.attributes:
        return Attribute((attacked.attributes[modality] > 0).astype(np.int64), "data")
    train = data.split("train")
    usable = np.flatnonzero(train.available[modality])
    if len(usable) > _MOST_ROWS:
        usable = np.sort(stream(params.seed, "attacks", "attribute").permutation(usable)[:_MOST_ROWS])
    vectors = as_vectors(train.take(usable)), as_vectors(attacked)
    return Attribute(component_sign(*vectors, modality, retained), "principal component")


def component_sign(train: Rows, attacked: Rows, modality: str, retained: tuple[str, ...]) -> Array:
    """Return the side of each attacked row along the first component of the residual of m* given `retained`."""
    matrix = np.asarray(train.features[modality], np.float64)
    centre, deviation = matrix.mean(0), np.maximum(matrix.std(0), _DEVIATION_FLOOR)

    def standardised(rows: Rows) -> Array:
        clipped: Array = np.clip((rows.features[modality] - centre) / deviation, -_REACH, _REACH)
        return clipped

    def inputs(rows: Rows) -> Array:
        return np.hstack([rows.features[m] for m in retained])

    ridge = fit_ridge(inputs(train), standardised(train))
    remainder = standardised(train) - ridge.predict(inputs(train))
    direction = np.linalg.eigh(remainder.T @ remainder)[1][:, -1]
    direction = direction * np.sign(direction[np.abs(direction).argmax()])  # one of two signs, always the same
    middle = np.median(remainder @ direction)
    side: Array = (standardised(attacked) - ridge.predict(inputs(attacked))) @ direction > middle
    return side.astype(np.int64)

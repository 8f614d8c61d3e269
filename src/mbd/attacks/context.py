"""What all attacks share: the attacked rows, their two halves, and the private attribute.

The attacker has the data including m*: otherwise no guess could be scored. The attacked rows have m* and another
modality, and were not trained on. Attacks fit on `fit` and score on `score`; no group (speaker, video) is in both.

The private attribute is a property of m* that the retained modalities do not reveal: the one that the data names for
m*. If the data names none, m* is regressed on the retained modalities (ridge), and the attribute is the side of the
median on which a row lies along the first principal component of the residual. Both are fitted on train rows and
applied to the attacked ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mbd.errors import DataError, UsageError
from mbd.evaluation.ridge import DEVIATION_FLOOR, fit_ridge
from mbd.features.contract import FeatureSet
from mbd.features.pooling import as_vectors
from mbd.features.rows import Rows
from mbd.params.deletion import AttacksSettings
from mbd.randomness import stream
from mbd.tensors import Array

_MOST_ROWS = 4000
REACH = 3.0  # standardised columns are clipped to ±REACH deviations, so that no single value decides an R²
_FEWEST_ROWS = 8
_FOLDS = 4


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
    centre, deviation = matrix.mean(0), np.maximum(matrix.std(0), DEVIATION_FLOOR)

    def standardised(rows: Rows) -> Array:
        clipped: Array = np.clip((rows.features[modality] - centre) / deviation, -REACH, REACH)
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


@dataclass(frozen=True, eq=False)
class AttackContext:
    """Rows, halves and attribute of the attacks on one modality."""

    data: FeatureSet
    modality: str
    """m*"""
    retained: tuple[str, ...]
    """the modalities that models are given beside m*"""
    rows: Rows
    """the attacked rows: all have m*, none has a modality that is neither m* nor retained"""
    fit: Array
    """positions of the rows that attacks fit on"""
    score: Array
    """positions of the rows that attacks are scored on"""
    attribute: Attribute
    """the private attribute of each attacked row"""
    params: AttacksSettings

    def draw(self, *names: str) -> np.random.Generator:
        """Return the random stream of these names."""
        return stream(self.params.seed, "attacks", *names)

    @cached_property
    def folds(self) -> Array:
        """The fold of each fit row, by group: for choices that an attack makes within its own half."""
        return _parts(self.rows.groups[self.fit], _FOLDS, self.draw("folds"))

    @cached_property
    def by_fold(self) -> Array:
        """Positions of the fit rows, fold after fold."""
        return self.fit[np.argsort(self.folds, kind="stable")]

    @cached_property
    def held_out(self) -> list[slice]:
        """The rows of each fold in `by_fold`."""
        ends = np.cumsum(np.unique(self.folds, return_counts=True)[1]).tolist()
        return [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]

    @cached_property
    def vectors(self) -> Rows:
        """The attacked rows with a vector for each modality."""
        return as_vectors(self.rows)

    @cached_property
    def target(self) -> Array:
        """m* of each attacked row, standardised as in the fit rows."""
        return self.standardise(self.vectors.features[self.modality])

    @cached_property
    def own(self) -> Array:
        """The part of m* of each attacked row that a ridge map from the retained modalities does not predict."""
        retained = np.hstack([self.vectors.features[m] for m in self.retained])
        return self.target - fit_ridge(retained[self.fit], self.target[self.fit]).predict(retained)

    @cached_property
    def known(self) -> dict[str, Array]:
        """What the attacker fed to the model and so knows without it: the retained inputs of each row."""
        return {f"input.{m}": self.vectors.features[m] for m in self.retained}

    @cached_property
    def groups(self) -> Array:
        """The group of each scored row."""
        return self.rows.groups[self.score]

    def train_rows(self, draw: np.random.Generator, most: int | None = None) -> Rows:
        """Return train rows that have m* and another modality; of more than `most` (`attacks.rows`), so many drawn."""
        return _usable(self.data, ("train",), self.modality, self.retained, most or self.params.rows, draw)

    def standardise(self, matrix: Array) -> Array:
        """Return vectors of m* on the scale of the fit rows."""
        mean, deviation = self._scaling
        return np.clip((np.asarray(matrix, np.float64) - mean) / deviation, -REACH, REACH)

    @cached_property
    def _scaling(self) -> tuple[Array, Array]:
        fitted = np.asarray(self.vectors.features[self.modality][self.fit], np.float64)
        return fitted.mean(0), np.maximum(fitted.std(0), DEVIATION_FLOOR)


def make_context(
    data: FeatureSet, modality: str, params: AttacksSettings, *, retained: tuple[str, ...] | None = None
) -> AttackContext:
    """Choose the attacked rows of `data` and their halves.

    `retained` are the modalities that models are given beside m*: all others of the data, unless several are deleted.
    """
    if modality not in data.modalities:
        raise UsageError(
            f"the data has no {modality} to attack with",
            key="modality",
            hint=f"attack one of {', '.join(data.modalities)}, with data that still holds it",
        )
    retained = tuple(m for m in data.modalities if m != modality and (retained is None or m in retained))
    if not retained:
        raise UsageError(f"{modality} is the only modality: nothing would be left to attack")
    rows = _usable(data, params.splits, modality, retained, params.rows, stream(params.seed, "attacks", "rows"))
    if len(rows) < _FEWEST_ROWS:
        raise DataError(
            f"only {len(rows)} rows of {', '.join(params.splits)} have {modality} and another modality",
            file=data.folder,
            hint=f"attack at least {_FEWEST_ROWS} rows: attacks.splits",
        )
    half = _parts(rows.groups, 2, stream(params.seed, "attacks", "halves"))
    fit, score = np.flatnonzero(half == 0), np.flatnonzero(half == 1)
    if len(score) < params.least_rows:
        raise DataError(
            f"{len(score)} rows to score attacks on are too few to distinguish a deleted model from a leaking one",
            file=data.folder,
            key="attacks.least_rows",
            value=params.least_rows,
            hint="attack more rows: name more of them in attacks.splits, or hold out a larger test split",
        )
    attribute = find_attribute(data, rows, modality, retained, params)
    for part, name in ((fit, "fit on"), (score, "are scored on")):
        if len(np.unique(attribute.values[part])) < 2:
            raise DataError(
                f"the private attribute of {modality} has only one value in the half that attacks {name}",
                file=data.folder,
                hint="attack more rows: attacks.splits",
            )
    return AttackContext(data, modality, retained, rows, fit, score, attribute, params)


def unit_rows(matrix: Array, least: float) -> Array:
    """Return the rows of a matrix with length one, and zeros for those that are not longer than `least`."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit: Array = np.divide(matrix, lengths, out=np.zeros_like(matrix), where=lengths > least)
    return unit


def _usable(
    data: FeatureSet,
    splits: Sequence[str],
    modality: str,
    retained: tuple[str, ...],
    most: int,
    draw: np.random.Generator,
) -> Rows:
    """Return the rows that have m* and a retained modality, or `most` of them; all other modalities are made absent.

    Rows are chosen before they are read: a split may be larger than memory.
    """
    found = [data.split(name) for name in splits]
    bits = [split.available for split in found]
    usable = np.concatenate([b[modality] & np.any([b[m] for m in retained], axis=0) for b in bits])
    chosen = np.flatnonzero(usable)
    if len(chosen) > most:
        chosen = chosen[np.sort(draw.permutation(len(chosen))[:most])]
    ends = np.cumsum([0, *map(len, found)])
    parts = np.split(chosen, np.searchsorted(chosen, ends[1:-1]))
    rows = Rows.joined([split.take(own - start) for split, own, start in zip(found, parts, ends, strict=False)])
    closed = [m for m in rows.features if m not in (modality, *retained)]
    features = {m: np.zeros_like(x) if m in closed else x for m, x in rows.features.items()}
    return replace(rows, features=features, available={m: x & (m not in closed) for m, x in rows.available.items()})


def _parts(groups: Array, count: int, draw: np.random.Generator) -> Array:
    """Return the part (0 … count − 1) of each row: equal numbers of rows as far as groups allow, whole groups each.

    Where there are fewer groups than parts, rows are dealt one by one.
    """
    names, members = np.unique(groups, return_inverse=True)
    if len(names) < 2 * count:
        names, members = np.arange(len(groups)), np.arange(len(groups))
    order = draw.permutation(len(names))
    sizes = np.bincount(members, minlength=len(names))[order]
    # With groups in random order, a group goes to the part in which the middle of its rows falls.
    middle = np.cumsum(sizes) - sizes / 2
    part = np.empty(len(names), np.int64)
    part[order] = np.minimum(middle * count // sizes.sum(), count - 1).astype(np.int64)
    return part[members]

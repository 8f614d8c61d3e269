"""Feature data in memory, as every source delivers it.

The array of a modality says what it is: n × d numbers are vectors, n × T × d sequences, n × channels × height × width
images, and n × T whole numbers (int64) token ids. Sequences and token ids have lengths; what lies behind a row's length
is zero.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from mbd.blocks import take_rows
from mbd.formats.features import Shape, Task, lengths_of
from mbd.records import check_names
from mbd.tensors import Array, scratch

SPLITS = ("train", "valid", "test", "calibration")
SPLIT_ALIASES = {"val": "valid", "dev": "valid", "validation": "valid"}
"""other names that files have for a split"""


WITH_LENGTHS = ("sequence", "tokens")
_KINDS: dict[int, Literal["vector", "sequence", "image"]] = {2: "vector", 3: "sequence", 4: "image"}


def kind_of(array: Array) -> Literal["vector", "sequence", "image", "tokens"]:
    """Return what an array of rows holds; one of no known kind is taken for vectors, and refused when it is checked."""
    return "tokens" if array.ndim == 2 and array.dtype == np.int64 else _KINDS.get(array.ndim, "vector")


def within(lengths: Array, positions: int) -> Array:
    """Return which positions of each row lie within its length (n × positions)."""
    inside: Array = np.arange(positions) < np.asarray(lengths)[:, None]
    return inside


@dataclass(frozen=True)
class Rows:
    """The rows of one split: `n` utterances, for each modality an array with an entry for each."""

    ids: Array
    groups: Array
    labels: Array
    features: Mapping[str, Array]
    available: Mapping[str, Array]
    attributes: Mapping[str, Array] = field(default_factory=dict)
    """a private binary attribute of some modalities, where one is known"""
    lengths: Mapping[str, Array] = field(default_factory=dict)
    """true lengths of the modalities that are sequences or token ids"""

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(
        cls,
        ids: Sequence[str] | Array,
        labels: Array,
        features: Mapping[str, Array],
        *,
        groups: Sequence[str] | Array | None = None,
        available: Mapping[str, Array] | None = None,
        attributes: Mapping[str, Array] | None = None,
        lengths: Mapping[str, Array] | None = None,
    ) -> "Rows":
        """Build rows; without `groups` each row is its own, without `available` every modality is there.

        A sequence, or token ids, without lengths is as long as its array.
        """
        ids = np.asarray(ids, dtype=np.str_)
        present = {m: np.ones(len(x), dtype=bool) for m, x in features.items()} | dict(available or {})
        whole = {m: np.full(len(x), x.shape[1], np.int64) for m, x in features.items() if kind_of(x) in WITH_LENGTHS}
        return cls(
            ids=ids,
            groups=ids if groups is None else np.asarray(groups, dtype=np.str_),
            labels=labels,
            features=features,
            available=present,
            attributes=attributes or {},
            lengths=whole | dict(lengths or {}),
        )

    def inputs(self, modalities: Iterable[str] | None = None) -> dict[str, Array]:
        """Return the features of these modalities (default: all) with their lengths, as a model takes them."""
        inputs = {}
        for m in self.features if modalities is None else modalities:
            inputs[m] = self.features[m]
            if m in self.lengths:
                inputs[lengths_of(m)] = self.lengths[m]
        return inputs

    def swapped(self, modality: str, index: Array) -> "Rows":
        """Return the rows with this modality of the rows at `index`."""
        lengths = {m: x[index] if m == modality else x for m, x in self.lengths.items()}
        return replace(self, features={**self.features, modality: self.features[modality][index]}, lengths=lengths)

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Return several rows as one, with the modalities that all of them have."""
        if len(parts) == 1:
            return parts[0]

        def both(name: str) -> dict[str, Array]:
            parts_of = [getattr(part, name) for part in parts]
            common = [m for m in parts_of[0] if all(m in other for other in parts_of)]
            return {m: joined([part[m] for part in parts_of]) for m in common}

        def joined(arrays: list[Array]) -> Array:
            whole = scratch((sum(map(len, arrays)), *arrays[0].shape[1:]), np.result_type(*arrays))
            return np.concatenate(arrays, out=whole)

        ids, groups, labels = (
            np.concatenate([getattr(p, name) for p in parts]) for name in ("ids", "groups", "labels")
        )
        named = (both(name) for name in ("features", "available", "attributes", "lengths"))
        return cls(ids, groups, labels, *named)

    def take(self, index: Array) -> "Rows":
        """Return the rows at `index` (positions or a mask)."""
        parts = (self.available, self.attributes, self.lengths)
        return Rows(
            self.ids[index],
            self.groups[index],
            self.labels[index],
            {m: take_rows(x, index) for m, x in self.features.items()},
            *({m: x[index] for m, x in part.items()} for part in parts),
        )


@dataclass(frozen=True)
class Collection:
    """What a source has read: splits of rows, with notes."""

    name: str
    task: Task
    splits: Mapping[str, Rows]
    classes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """the files that were read, for their digests"""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """what was repaired or left out while reading, with counts"""
    vocabularies: Mapping[str, int] = field(default_factory=dict)
    """of token ids, where more ids than those that occur are known"""

    def __post_init__(self) -> None:
        """Check the names of the modalities: files are named after them."""
        for rows in self.splits.values():
            check_names(rows.features, "modality", next(iter(self.files), None))

    @property
    def modalities(self) -> dict[str, int]:
        """Name and dimension (numbers at each position) of each modality."""
        return {name: shape.width for name, shape in self.shapes.items()}

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Name and shape of each modality."""
        first = next(iter(self.splits.values()))
        return {name: self._shape(name, array) for name, array in first.features.items()}

    def _shape(self, name: str, array: Array) -> Shape:
        kind = kind_of(array)
        if kind != "tokens":
            return Shape.model_validate({"kind": kind, "size": array.shape[1:], "dtype": array.dtype.name})
        parts = [rows.features[name] for rows in self.splits.values() if name in rows.features]
        largest = max(int(ids.max(initial=0)) for ids in parts)
        return Shape(kind=kind, size=array.shape[1:], vocabulary=max(self.vocabularies.get(name, 0), largest + 1))

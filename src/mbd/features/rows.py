"""Feature data in memory, as every source delivers it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mbd.names import check_names
from mbd.params.features import Task
from mbd.tensors import Array

SPLITS = ("train", "valid", "test", "calibration")
SPLIT_ALIASES = {"val": "valid", "dev": "valid"}
"""other names that files have for a split"""


@dataclass(frozen=True)
class Rows:
    """The rows of one split: `n` utterances, for each modality `m` a matrix of `n × d_m`."""

    ids: Array
    groups: Array
    labels: Array
    features: Mapping[str, Array]
    available: Mapping[str, Array]
    attributes: Mapping[str, Array] = field(default_factory=dict)
    """a private binary attribute of some modalities, where one is known"""

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
    ) -> "Rows":
        """Build rows; without `groups` each row is its own, without `available` every modality is there."""
        ids = np.asarray(ids, dtype=np.str_)
        present = {m: np.ones(len(x), dtype=bool) for m, x in features.items()} | dict(available or {})
        return cls(
            ids=ids,
            groups=ids if groups is None else np.asarray(groups, dtype=np.str_),
            labels=labels,
            features=features,
            available=present,
            attributes=attributes or {},
        )

    def take(self, index: Array) -> "Rows":
        """Return the rows at `index` (positions or a mask)."""
        return Rows(
            self.ids[index],
            self.groups[index],
            self.labels[index],
            *({m: x[index] for m, x in part.items()} for part in (self.features, self.available, self.attributes)),
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

    def __post_init__(self) -> None:
        """Check the names of the modalities: files are named after them."""
        for rows in self.splits.values():
            check_names(rows.features, "modality", next(iter(self.files), None))

    @property
    def modalities(self) -> dict[str, int]:
        """Name and dimension of each modality."""
        first = next(iter(self.splits.values()))
        return {name: matrix.shape[1] for name, matrix in first.features.items()}

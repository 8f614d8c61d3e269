"""The rows that training works on, as tensors on the device; where they are many, they are read batch by batch.

A row that has none of the modalities in use (all it had was left out by `--without`) is skipped.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mbd.blocks import Columns, moments
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.formats.features import Task
from mbd.model.contract import to_tensor
from mbd.records import dotless
from mbd.tensors import Array, file_of, release

_SMALLEST_DEVIATION = 1e-6
_IN_MEMORY = 1 << 28
"""bytes of features that are kept on the device"""


def rows_with_something(feature_set: FeatureSet, split: str) -> Rows:
    """Return the rows of a split that have at least one of the modalities in use."""
    rows = feature_set.split(split)
    something = np.any(list(rows.available.values()), axis=0)
    if not something.any():
        raise DataError(
            f"no row of the split {split} has any of {', '.join(feature_set.modalities)}",
            file=feature_set.folder,
            key=split,
            hint="leave out fewer modalities",
        )
    if sum(x.nbytes for x in rows.features.values()) < _IN_MEMORY:
        return rows.take(something)
    return rows.mapped() if something.all() else rows.mapped().take(something)


def scaling(matrix: Array, available: Array) -> tuple[Array, Array]:
    """Return mean and deviation of each column over the rows that have the modality.

    A column that never varies gets the deviation 1, so that it is zero once standardised; so does a modality that no
    row has.
    """
    there = Columns((matrix,), np.flatnonzero(available))
    rows, columns = there.shape
    if not rows:
        return np.zeros(columns, np.float32), np.ones(columns, np.float32)
    mean, deviation = moments(there)
    scale = np.where(deviation > _SMALLEST_DEVIATION, deviation, 1.0)
    return mean.astype(np.float32), scale.astype(np.float32)


def initial_scaling(train: Rows, task: Task) -> dict[str, Array]:
    """Return the scaling tensors of a network that will be trained on `train`, by their names in it."""
    tensors = {}
    for m, matrix in train.features.items():
        pathway = f"modality.{dotless(m)}"
        tensors[f"{pathway}.mean"], tensors[f"{pathway}.scale"] = scaling(matrix, train.available[m])
    numbers = np.zeros((1, 1)) if task == "classification" else train.labels[:, None]
    tensors["label_mean"], tensors["label_scale"] = scaling(numbers, np.ones(len(numbers), bool))
    return tensors


@dataclass(frozen=True)
class RawRows:
    """Rows as tensors on the device, as a network takes them; what lies in a file is brought there by `take`."""

    features: dict[str, Tensor]
    available: dict[str, Tensor]
    labels: Tensor
    in_files: tuple[Array, ...] = ()

    @classmethod
    def of(cls, rows: Rows, task: Task, device: torch.device) -> "RawRows":
        """Bring `rows` to the device."""
        kind = np.int64 if task == "classification" else np.float32
        inputs = rows.inputs()
        return cls(
            {name: _in_file(x) if file_of(x) is not None else to_tensor(x).to(device) for name, x in inputs.items()},
            {m: torch.from_numpy(np.array(bits, bool)).to(device) for m, bits in rows.available.items()},
            torch.from_numpy(np.array(rows.labels, kind)).to(device),
            tuple(x for x in inputs.values() if file_of(x) is not None),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor | slice) -> "RawRows":
        """Return the rows at `index`."""
        device = self.labels.device
        rows = RawRows(
            {
                name: x[index if isinstance(index, slice) else index.to(x.device)].to(device)
                for name, x in self.features.items()
            },
            {m: bits[index] for m, bits in self.available.items()},
            self.labels[index],
        )
        for array in self.in_files:
            release(array)
        return rows

    def parts(self, rows: int) -> Iterator["RawRows"]:
        """Yield the rows in their order, so many at a time."""
        return (self.take(slice(start, start + rows)) for start in range(0, len(self), rows))


def _in_file(array: Array) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # it is only read
        return torch.from_numpy(array)

"""The rows that training works on: in memory, standardised, as tensors on the device.

A row that has none of the modalities in use (all it had was left out by `--without`) is skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.model.contract import to_tensor
from mbd.model.networks import JointNetwork
from mbd.names import dotless
from mbd.params.features import Task
from mbd.tensors import Array
from mbd.training.draws import Step
from mbd.training.objective import Batch

_SMALLEST_DEVIATION = 1e-6


def rows_with_something(feature_set: FeatureSet, split: str) -> Rows:
    """Return the rows of a split that have at least one of the modalities in use."""
    found = feature_set.split(split)
    something = np.any(list(found.available.values()), axis=0)
    if not something.any():
        raise DataError(
            f"no row of the split {split} has any of {', '.join(feature_set.modalities)}",
            file=feature_set.folder,
            key=split,
            hint="leave out fewer modalities",
        )
    return found.take(something)


def scaling(matrix: Array, available: Array) -> tuple[Array, Array]:
    """Return mean and deviation of each column over the rows that have the modality.

    A column that never varies gets the deviation 1, so that it is zero once standardised; so does a modality that no
    row has.
    """
    there = np.asarray(matrix[available], np.float64)
    if not len(there):
        return np.zeros(matrix.shape[1], np.float32), np.ones(matrix.shape[1], np.float32)
    deviation = there.std(0)
    scale = np.where(deviation > _SMALLEST_DEVIATION, deviation, 1.0)
    return there.mean(0).astype(np.float32), scale.astype(np.float32)


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
    """Rows as tensors on the device, as a network takes them."""

    features: dict[str, Tensor]
    available: dict[str, Tensor]
    labels: Tensor

    @classmethod
    def of(cls, rows: Rows, task: Task, device: torch.device) -> "RawRows":
        """Bring `rows` to the device."""
        kind = np.int64 if task == "classification" else np.float32
        return cls(
            {name: to_tensor(x).to(device) for name, x in rows.inputs().items()},
            {m: torch.from_numpy(np.asarray(bits, bool)).to(device) for m, bits in rows.available.items()},
            torch.from_numpy(np.asarray(rows.labels, kind)).to(device),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor | slice) -> "RawRows":
        """Return the rows at `index`."""
        return RawRows(
            {name: x[index] for name, x in self.features.items()},
            {m: bits[index] for m, bits in self.available.items()},
            self.labels[index],
        )

    def parts(self, rows: int) -> Iterator["RawRows"]:
        """Yield the rows in their order, so many at a time."""
        return (self.take(slice(start, start + rows)) for start in range(0, len(self), rows))


@dataclass(frozen=True)
class TrainingRows:
    """Rows on the scale on which they are learnt, and their availability also in main memory, for the draws."""

    inputs: dict[str, Tensor]
    available: dict[str, Tensor]
    labels: Tensor
    bits: dict[str, Array]

    @classmethod
    def of(cls, rows: Rows, network: JointNetwork, task: Task, device: torch.device) -> "TrainingRows":
        """Bring `rows` to the device, on the scale of `network`."""
        raw = RawRows.of(rows, task, device)
        labels = raw.labels
        if task == "regression":
            labels = (labels - network.label_mean) / network.label_scale
        return cls(network.standardise(raw.features, raw.available), raw.available, labels, dict(rows.available))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, step: Step) -> Batch:
        """Return the rows of one step."""
        device = self.labels.device
        rows = torch.from_numpy(step.rows).to(device)
        return Batch(
            inputs={m: x[rows] for m, x in self.inputs.items()},
            available={m: bits[rows] for m, bits in self.available.items()},
            shown={m: torch.from_numpy(bits).to(device) for m, bits in step.shown.items()},
            labels=self.labels[rows],
            masks=(torch.from_numpy(step.masks[0]).to(device), torch.from_numpy(step.masks[1]).to(device)),
        )

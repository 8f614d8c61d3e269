r"""The calibration rows as input of a network, batch by batch, and the losses that Algorithm 1 measures on them.

    about m*      joint: ‖G_m(X^{\m}, P^m) − X^m‖², the paper's L_re^(m)(i), on the network's own scale
                  module: ‖X̂^m* − X^m*‖² where it reconstructs modalities, else ‖f(x) − f(x without m*)‖²
    prediction    ℓ(ŷ, y), and r₁ … r_K with Σ_i Σ_k ∇r_k ∇r_kᵀ the Gauss–Newton matrix of Σ_i ℓ

Squared error has r = √2 ŷ; cross-entropy has r_k = √p_k · log p_k with √p_k held fixed. What a joint network lacks in a
row is generated from the rest, as in every prediction. Parametrised weights of a module are measured as the tensors
that they stand for.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from mbd.deletion.gradients import Batch, Losses
from mbd.features.contract import Split
from mbd.features.rows import Rows
from mbd.formats.features import Task, lengths_of
from mbd.formats.model import ModelRecord
from mbd.model import joint, module
from mbd.model.contract import materialise, own_method
from mbd.model.networks import JointNetwork
from mbd.tensors import Array
from mbd.training.data import RawRows
from mbd.training.objective import reconstruction_loss, task_loss

_MOST_ROWS, _FEWEST_ROWS = 512, 32
_MOST_GRADIENTS = 1 << 30
"""numbers of per-sample gradients by all parameters of a module: the larger it is, the fewer rows are taken"""
_LABELS = "labels:"
_AVAILABLE = "available:"


@dataclass(frozen=True)
class Calibration(ABC):
    """The calibration split in the shape of one network."""

    split: Split
    network: nn.Module
    task: Task
    rows_at_once: ClassVar[int] = 1024
    """rows of a batch"""

    @property
    @abstractmethod
    def modalities(self) -> Collection[str]:
        """What the network takes."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """How many numbers the network gives for a row."""

    @abstractmethod
    def about(self, modality: str) -> Losses | None:
        """Return what is measured of one modality; None: nothing."""

    @abstractmethod
    def prediction(self, hidden: Collection[str] = ()) -> Losses:
        """Return the supervised loss and r₁ … r_K of each row with `hidden` modalities missing."""

    @abstractmethod
    def _batch(self, rows: Rows, hidden: Collection[str]) -> Batch:
        """Return rows as the network takes them."""

    @property
    def most_rows(self) -> int:
        """How many rows are used."""
        return len(self.split)

    def batches(self, *, having: str | None = None, hidden: Collection[str] = ()) -> Iterator[Batch]:
        """Yield the rows in order, with `hidden` modalities missing; a row that then has none is left out.

        With `having`, only rows that have that modality.
        """
        for start in range(0, self.most_rows, self.rows_at_once):
            rows = self.split.take(slice(start, min(start + self.rows_at_once, self.most_rows)))
            left = [m for m in self.modalities if m in rows.available and m not in hidden]
            usable = np.any([rows.available[m] for m in ([having] if having else left)], axis=0)
            if usable.any():
                yield self._batch(rows if usable.all() else rows.take(usable), hidden)


class JointCalibration(Calibration):
    """The calibration split in the shape of a joint network."""

    network: JointNetwork

    @classmethod
    def of(cls, record: ModelRecord, tensors: Mapping[str, Array], split: Split) -> "JointCalibration":
        """Build the network of a model."""
        return cls(split, joint.from_tensors(record, tensors).network, record.task)

    @property
    def modalities(self) -> Mapping[str, int]:
        """What the network takes, with dimensions."""
        return self.network.modalities

    @property
    def outputs(self) -> int:
        """How many numbers the network gives for a row."""
        return self.network.head.out_features

    def about(self, modality: str) -> Losses | None:
        """Return L_re of one modality, or None if the network reconstructs nothing."""
        return reconstruction(modality) if self.network.shape.reconstruction else None

    def prediction(self, hidden: Collection[str] = ()) -> Losses:
        """Return the supervised loss and r₁ … r_K of each row with `hidden` modalities missing."""
        there = self.split.available
        lacking = [m for m in self.modalities if m in hidden or m not in there or not there[m].all()]
        generated = lacking if self.network.shape.reconstruction else []

        def losses(network: nn.Module, batch: Batch) -> Tensor:
            own, inputs, available = _joint_parts(network, batch)
            complete = own.complete(inputs, available, {m: own.generate(m, inputs) for m in generated})
            return supervised(own.answer(own.fuse(complete, available), inputs, available), batch[_LABELS], self.task)

        return losses

    def _batch(self, rows: Rows, hidden: Collection[str]) -> Batch:
        network, n = self.network, len(rows)
        features, available = {}, {}
        for m, dim in self.modalities.items():
            given = m in rows.features and m not in hidden
            features[m] = rows.features[m] if given else np.zeros((n, dim), np.float32)
            available[m] = rows.available[m] if given else np.zeros(n, bool)
        dtype = network.label_mean.dtype
        there = {m: torch.from_numpy(np.asarray(bits, bool)) for m, bits in available.items()}
        inputs = network.standardise({m: torch.from_numpy(x).to(dtype) for m, x in features.items()}, there)
        if self.task == "classification":
            labels = torch.from_numpy(rows.labels.astype(np.int64))
        else:
            labels = (torch.from_numpy(rows.labels).to(dtype) - network.label_mean) / network.label_scale
        return inputs | {_AVAILABLE + m: bits for m, bits in there.items()} | {_LABELS: labels}


def reconstruction(modality: str) -> Losses:
    """Return L_re of one modality, for rows that have it."""

    def losses(network: nn.Module, batch: Batch) -> Tensor:
        own, inputs, _ = _joint_parts(network, batch)
        loss = reconstruction_loss(own.generate(modality, inputs), inputs[modality])
        return loss[:, None] * own.modalities[modality]

    return losses


def _joint_parts(network: nn.Module, batch: Batch) -> tuple[JointNetwork, dict[str, Tensor], dict[str, Tensor]]:
    own = cast(JointNetwork, network)  # these losses are only measured on the network of a JointCalibration
    available = {m: batch[_AVAILABLE + m] for m in own.modalities}
    return own, {m: batch[m] for m in own.modalities}, available


@dataclass(frozen=True)
class ModuleCalibration(Calibration):
    """The calibration split in the shape of a module."""

    record: ModelRecord
    rows_at_once: ClassVar[int] = 128

    @classmethod
    def of(cls, record: ModelRecord, tensors: Mapping[str, Array], split: Split) -> "ModuleCalibration":
        """Build the module of a model."""
        # With gradients on, torch takes no short cuts that pass by single layers.
        network = module.from_tensors(record, tensors).module.requires_grad_()
        return cls(split, materialise(network), record.task, record)

    @property
    def modalities(self) -> Collection[str]:
        """What the module takes."""
        return self.record.inputs

    @property
    def outputs(self) -> int:
        """How many numbers the module gives for a row."""
        return max(len(self.record.classes), 1)

    @property
    def most_rows(self) -> int:
        """How many rows are used: a gradient of each row by all parameters takes long where there are many."""
        size = sum(parameter.numel() for parameter in self.network.parameters())
        return min(len(self.split), _MOST_ROWS, max(_FEWEST_ROWS, _MOST_GRADIENTS // max(size, 1)))

    def about(self, modality: str) -> Losses:
        """Return the loss by which saliency of one modality is measured."""

        def losses(network: nn.Module, batch: Batch) -> Tensor:
            features, available = self._parts(batch)
            hidden = {**available, modality: torch.zeros_like(available[modality])}
            reconstruct = own_method(network, "reconstruct")
            made: Mapping[str, Tensor] = reconstruct(features, hidden) if reconstruct else {}
            difference: Tensor = (
                made[modality] - features[modality]
                if modality in made
                else network(features, available) - network(features, hidden)
            )
            return difference.flatten(1).square().sum(1, keepdim=True)

        return losses

    def prediction(self, hidden: Collection[str] = ()) -> Losses:
        """Return the supervised loss and r₁ … r_K of each row with `hidden` modalities missing."""

        def losses(network: nn.Module, batch: Batch) -> Tensor:
            features, available = self._parts(batch)
            there = {m: torch.zeros_like(bits) if m in hidden else bits for m, bits in available.items()}
            return supervised(network(features, there), batch[_LABELS], self.task)

        return losses

    def _batch(self, rows: Rows, hidden: Collection[str]) -> Batch:
        raw = RawRows.of(rows, self.task, torch.device("cpu"))
        known = {*self.modalities, *map(lengths_of, self.modalities)}
        features = {name: x for name, x in raw.features.items() if name in known}
        return features | {_AVAILABLE + m: raw.available[m] for m in self.modalities} | {_LABELS: raw.labels}

    def _parts(self, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        features = {name: x for name, x in batch.items() if ":" not in name}
        return features, {m: batch[_AVAILABLE + m] for m in self.modalities}


def supervised(output: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Return the supervised loss and r₁ … r_K of each row, from what a network gives for it."""
    loss = task_loss(output, labels, task)
    if task == "regression":
        return torch.cat([loss[:, None], sqrt(2) * output], dim=1)
    logarithms = output.log_softmax(dim=1)
    return torch.cat([loss[:, None], logarithms.detach().exp().sqrt() * logarithms], dim=1)

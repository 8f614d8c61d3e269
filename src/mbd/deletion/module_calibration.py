"""The calibration rows as input of a module of one's own, and the losses measured on them.

    about m*       ‖X̂^m* − X^m*‖² where the module reconstructs modalities, else ‖f(x) − f(x without m*)‖²
    prediction     ℓ(ŷ, y) and r₁ … r_K, as in :mod:`mbd.deletion.calibration`

Parametrised weights are measured as the tensors that they stand for.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from mbd.deletion.calibration import supervised
from mbd.deletion.gradients import Batch, Losses, Sums, sum_over_samples
from mbd.deletion.per_sample import Form
from mbd.features.contract import Split
from mbd.formats.features import Task, lengths_of
from mbd.formats.model import ModelRecord
from mbd.model.contract import materialise, own_method
from mbd.model.module import from_tensors
from mbd.tensors import Array
from mbd.training.data import RawRows

MOST_ROWS = 2048
"""calibration rows that are used"""
_ROWS_AT_ONCE = 128
_LABELS = "labels:"
_AVAILABLE = "available:"


class Measured(Protocol):
    """Calibration rows and a network on which saliency and importance are measured."""

    @property
    def network(self) -> nn.Module:
        """The network."""

    @property
    def split(self) -> Split:
        """The calibration rows."""

    @property
    def outputs(self) -> int:
        """How many numbers the network gives for a row."""

    def about(self, modality: str) -> Losses | None:
        """Return what is measured of one modality; None: nothing."""

    def prediction(self, hidden: Collection[str] = ()) -> Losses:
        """Return the supervised loss and r₁ … r_K."""

    def sums(
        self, losses: Losses, forms: tuple[Form, ...], *, having: str | None = None, hidden: Collection[str] = ()
    ) -> Sums:
        """Return the sums of gradients over all rows."""

    def rows_with(self, modality: str) -> int:
        """Return how many rows have a modality."""


@dataclass(frozen=True)
class ModuleCalibration:
    """The calibration split in the shape of one module."""

    split: Split
    network: nn.Module
    record: ModelRecord

    @classmethod
    def of(cls, record: ModelRecord, tensors: Mapping[str, Array], split: Split) -> "ModuleCalibration":
        """Build the module of a model."""
        # With gradients on, torch takes no short cuts that pass by single layers.
        network = from_tensors(record, tensors).module.requires_grad_()
        return cls(split, materialise(network), record)

    @property
    def outputs(self) -> int:
        """How many numbers the module gives for a row."""
        return max(len(self.record.classes), 1)

    def rows_with(self, modality: str) -> int:
        """Return how many of the rows in use have a modality."""
        return int(np.count_nonzero(self.split.available[modality][:MOST_ROWS]))

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
        task: Task = self.record.task

        def losses(network: nn.Module, batch: Batch) -> Tensor:
            features, available = self._parts(batch)
            there = {m: torch.zeros_like(bits) if m in hidden else bits for m, bits in available.items()}
            return supervised(network(features, there), batch[_LABELS], task)

        return losses

    def sums(
        self, losses: Losses, forms: tuple[Form, ...], *, having: str | None = None, hidden: Collection[str] = ()
    ) -> Sums:
        """Return the sums of gradients over the rows that have `having`, or anything but `hidden`."""
        return sum_over_samples(self.network, losses, self._batches(having, hidden), forms)

    def _batches(self, having: str | None, hidden: Collection[str]) -> Iterator[Batch]:
        names = list(self.record.inputs)
        for start in range(0, min(len(self.split), MOST_ROWS), _ROWS_AT_ONCE):
            rows = self.split.take(slice(start, start + _ROWS_AT_ONCE))
            needed = [having] if having else [m for m in names if m not in hidden]
            usable = np.any([rows.available[m] for m in needed], axis=0)
            if usable.any():
                raw = RawRows.of(rows.take(usable), self.record.task, torch.device("cpu"))
                known = {*names, *map(lengths_of, names)}
                features = {name: x for name, x in raw.features.items() if name in known}
                yield features | {_AVAILABLE + m: raw.available[m] for m in names} | {_LABELS: raw.labels}

    def _parts(self, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        features = {name: x for name, x in batch.items() if ":" not in name}
        return features, {m: batch[_AVAILABLE + m] for m in self.record.inputs}


def aliases(network: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return all names in the state of every parameter: a tied weight has several."""
    names: dict[int, list[str]] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), []).append(name)
    return {name: tuple(names.get(id(parameter), [name])) for name, parameter in network.named_parameters()}

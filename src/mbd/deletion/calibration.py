r"""The calibration rows as input of a joint network, batch by batch, and the losses measured on them.

    reconstruction of m   ‖G_m(X^{\m}, P^m) − X^m‖²      the paper's L_re^(m)(i), on the network's own scale
    prediction            ℓ(ŷ, y), and r₁ … r_K with Σ_i Σ_k ∇r_k ∇r_kᵀ the Gauss–Newton matrix of Σ_i ℓ

Squared error has r = √2 ŷ; cross-entropy has r_k = √p_k · log p_k with √p_k held fixed. Modalities that are hidden, or
missing in a row, are generated from the rest, as in every prediction.

Several processes (`torchrun`) share the batches. Batches do not depend on the process, and their sums are added in
float64, so the result is that of one process.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from mbd.deletion.gradients import Batch, Losses, Sums, sum_over_samples
from mbd.deletion.layers import LayerRow
from mbd.deletion.per_sample import Form
from mbd.features.contract import Split
from mbd.features.rows import Rows
from mbd.formats.features import Task
from mbd.model.losses import reconstruction_loss, task_loss
from mbd.model.networks import JointNetwork
from mbd.names import dotless
from mbd.training.distributed import ProcessGroup

ROWS_AT_ONCE = 1024
"""rows of a batch"""

_ALONE = ProcessGroup()
_LABELS = "labels:"
_AVAILABLE = "available:"


@dataclass(frozen=True)
class Calibration:
    """The calibration split in the shape of one network."""

    split: Split
    network: JointNetwork
    task: Task
    group: ProcessGroup = _ALONE

    def batches(self, *, having: str | None = None, hidden: Collection[str] = ()) -> Iterator[Batch]:
        """Yield the rows in order, with `hidden` modalities missing; a row that then has none is left out.

        With `having`, only rows that have that modality.
        """
        return self._batches(self._starts, having, hidden)

    def sums(
        self, losses: Losses, forms: tuple[Form, ...], *, having: str | None = None, hidden: Collection[str] = ()
    ) -> Sums:
        """Return the sums over all batches; each process of the group processes its share."""
        starts = self._starts[self.group.rank :: self.group.size]
        batches = self._batches(starts, having, hidden)
        own = sum_over_samples(self.network, losses, batches, forms, property_rows(self.network))
        if self.group.size == 1:
            return own
        total = Sums()
        for share in self.group.gather_objects(own.on_cpu()):
            total += share
        return total

    @property
    def _starts(self) -> range:
        return range(0, len(self.split), ROWS_AT_ONCE)

    def _batches(self, starts: range, having: str | None, hidden: Collection[str]) -> Iterator[Batch]:
        for start in starts:
            rows = self.split.take(slice(start, start + ROWS_AT_ONCE))
            needed = [having] if having else [m for m in rows.available if m not in hidden]
            usable = np.any([rows.available[m] for m in needed], axis=0)
            if usable.any():
                yield self._batch(rows if usable.all() else rows.take(usable), hidden)

    def rows_with(self, modality: str) -> int:
        """Return how many rows have a modality."""
        return int(np.count_nonzero(self.split.available[modality]))

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
        lacking = [m for m in self.network.modalities if m in hidden or m not in there or not there[m].all()]
        generated = lacking if self.network.shape.reconstruction else []
        return lambda network, batch: _prediction(network, batch, generated, self.task)

    def _batch(self, rows: Rows, hidden: Collection[str]) -> Batch:
        network, n = self.network, len(rows)
        features, available = {}, {}
        for m, dim in network.modalities.items():
            given = m in rows.features and m not in hidden
            features[m] = rows.features[m] if given else np.zeros((n, dim), np.float32)
            available[m] = rows.available[m] if given else np.zeros(n, bool)
        device, dtype = network.label_mean.device, network.label_mean.dtype
        there = {m: torch.from_numpy(np.asarray(bits, bool)).to(device) for m, bits in available.items()}
        raw = {m: torch.from_numpy(x).to(device, dtype) for m, x in features.items()}
        inputs = network.standardise(raw, there)
        if self.task == "classification":
            labels = torch.from_numpy(rows.labels.astype(np.int64)).to(device)
        else:
            labels = (torch.from_numpy(rows.labels).to(device, dtype) - network.label_mean) / network.label_scale
        return inputs | {_AVAILABLE + m: bits for m, bits in there.items()} | {_LABELS: labels}


def reconstruction(modality: str) -> Losses:
    """Return L_re of one modality, for rows that have it."""

    def losses(network: nn.Module, batch: Batch) -> Tensor:
        network, inputs, _ = _parts(network, batch)
        loss = reconstruction_loss(network.generate(modality, inputs), inputs[modality])
        return loss[:, None] * network.modalities[modality]

    return losses


def _prediction(network: nn.Module, batch: Batch, generated: Collection[str], task: Task) -> Tensor:
    network, inputs, available = _parts(network, batch)
    complete = network.complete(inputs, available, {m: network.generate(m, inputs) for m in generated})
    return supervised(network.answer(network.fuse(complete, available), inputs, available), batch[_LABELS], task)


def supervised(output: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Return the supervised loss and r₁ … r_K of each row, from what a network gives for it."""
    loss = task_loss(output, labels, task)
    if task == "regression":
        return torch.cat([loss[:, None], sqrt(2) * output], dim=1)
    logarithms = output.log_softmax(dim=1)
    return torch.cat([loss[:, None], logarithms.detach().exp().sqrt() * logarithms], dim=1)


def _parts(network: nn.Module, batch: Batch) -> tuple[JointNetwork, dict[str, Tensor], dict[str, Tensor]]:
    own = cast(JointNetwork, network)  # these losses are only measured on the network of a Calibration
    available = {m: batch[_AVAILABLE + m] for m in own.modalities}
    return own, {m: batch[m] for m in own.modalities}, available


def property_rows(network: JointNetwork) -> dict[str, LayerRow]:
    """Return where the property embeddings P^m enter: they are the last inputs of their generators."""
    if not (network.shape.property_pathway and network.shape.reconstruction):
        return {}
    columns = slice(-network.shape.property_dim, None)
    return {
        f"modality.{m}.property": LayerRow(f"modality.{m}.generator.hidden.weight", columns)
        for m in map(dotless, network.modalities)
    }

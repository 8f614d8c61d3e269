"""Training of any module under :mod:`mbd.model.contract`: its own loss or the task's, with modalities hidden at random.

While training, each modality of each row is hidden with probability `modality_dropout`. The module gets features and
labels as they are: scaling is its own affair. Whatever it draws from torch's generator (dropout) depends on seed, step
and process alone, so a run that was killed ends with the same bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.formats.model import ModelRecord
from mbd.model.contract import Architecture, own_method, seeded
from mbd.model.joint import to_tensor_dict
from mbd.model.module import architecture_for, architecture_of, load_state, provenance, spec_of, zero_dead
from mbd.model.probing import refuse_unsuitable
from mbd.params import Params
from mbd.params.learning import TrainingSettings
from mbd.tensors import Array
from mbd.training.data import RawRows, rows_with_something
from mbd.training.distributed import ProcessGroup, join_group
from mbd.training.draws import order_of_epoch, shown_in_epoch
from mbd.training.loop import TrainingRun, finetuning, mean_of_terms
from mbd.training.objective import task_loss
from mbd.training.optimiser import Optimiser
from mbd.training.reproducibility import choose_device, reproducible
from mbd.training.trained import Trained, model_record, recorded_training

TERMS = ("total", "task")


def train_module(feature_set: FeatureSet, params: Params, *, work: Path, progress: bool) -> Trained:
    """Train on `feature_set`; `work` keeps the snapshot from which a killed run continues."""
    with reproducible(params.training.threads):
        architecture, fixed = _architecture(feature_set, params)
        run = ModuleRun(architecture, feature_set, params.training, join_group())
        best = run.train(work, progress)
        tensors = zero_dead(architecture, best, fixed) if fixed else best
        spec = spec_of(architecture, recorded_training(params.training))
        seen = provenance(architecture, tensors, feature_set.modalities)
        record = model_record(feature_set, params.model.backbone, spec, params.training.seed, seen)
        return Trained(record, tensors, run.state.history)


def import_weights(
    feature_set: FeatureSet, params: Params, fit: Callable[[Mapping[str, Array]], Mapping[str, Array]]
) -> Trained:
    """Return the model with weights that were trained elsewhere, on the modalities of `feature_set`.

    `fit` gets the state of the module as it was built, and returns the weights under the same names; a DataError if
    they do not fit.
    """
    with reproducible(params.training.threads):
        architecture, fixed = _architecture(feature_set, params)
        module = architecture.build()
        built = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
        load_state(module, fit(built), architecture.name)
        tensors = to_tensor_dict(module)
        if fixed:
            with suppress(UsageError):  # a parametrisation may not hold zeros, or the module cannot be probed
                tensors = zero_dead(architecture, tensors, fixed)
        seen = provenance(architecture, tensors, feature_set.modalities)
        spec = spec_of(architecture, {})
        record = model_record(feature_set, params.model.backbone, spec, params.training.seed, seen)
        return Trained(record, tensors, [])


def _architecture(feature_set: FeatureSet, params: Params) -> tuple[Architecture, list[str]]:
    """Return the architecture for the modalities of a FeatureSet, and those that a fixed shape has besides."""
    manifest = feature_set.manifest
    # Shapes of modalities that are left out come from the manifest: no byte of them is read.
    everything = FeatureSet.open(feature_set.folder).shapes
    full = architecture_for(params.model, everything, max(len(manifest.classes), 1))
    gone = [m for m in everything if m not in manifest.modalities]
    architecture = full.without(gone) if gone else full
    module = architecture.build()
    for modality in manifest.modalities:
        refuse_unsuitable(architecture, module, modality)
    return architecture, [m for m in gone if m in architecture.modalities]


def finetune(
    record: ModelRecord,
    tensors: Mapping[str, Array],
    feature_set: FeatureSet,
    params: Params,
    *,
    epochs: int | Literal["auto"],
) -> tuple[dict[str, Array], list[dict[str, float]]]:
    """Return the weights after `epochs` epochs on `feature_set`, which has the model's modalities, and the losses."""
    architecture = architecture_of(record)
    training = finetuning(params.training, epochs)
    with reproducible(training.threads):
        run = ModuleRun(architecture, feature_set, training, ProcessGroup())
        load_state(run.network, tensors, record.backbone)
        run.finetune(epochs)
        best = run.state.best or dict(tensors)
        fixed = [m for m in architecture.modalities if m not in record.modalities]
        return zero_dead(architecture, best, fixed) if fixed else best, run.state.history


class ModuleRun(TrainingRun):
    """One training of a module."""

    def __init__(
        self,
        architecture: Architecture,
        feature_set: FeatureSet,
        training: TrainingSettings,
        group: ProcessGroup,
        *,
        train: Rows | None = None,
        valid: Rows | None = None,
    ) -> None:
        """Prepare a training on the train and the valid split, or on other rows of a FeatureSet."""
        task = feature_set.manifest.task
        device = choose_device(training.device, group.local_rank)
        network = architecture.build(seed=training.seed).to(device)
        train = rows_with_something(feature_set, "train") if train is None else train
        self.bits = dict(train.available)
        self.rows = RawRows.of(train, task, device)
        self.steps_per_epoch = len(list(_batches(np.arange(len(train)), training.batch_size)))
        optimiser = Optimiser(network, training, self.steps_per_epoch * training.epochs)
        valid = rows_with_something(feature_set, "valid") if valid is None else valid
        super().__init__(network, optimiser, RawRows.of(valid, task, device), task, training, group)
        self.snapshot_key = self.key([architecture.name, spec_of(architecture, {})], feature_set)

    def epoch(self, number: int) -> dict[str, float]:
        """Train one epoch; return the mean loss over its rows."""
        seed, rank = self.training.seed, str(self.group.rank)
        order = order_of_epoch(seed, number, len(self.rows))
        shown = shown_in_epoch(seed, number, self.bits, self.training.modality_dropout)
        self.network.train()
        values, sizes = [], []
        for place, rows in enumerate(_batches(order, self.training.batch_size), start=number * self.steps_per_epoch):
            self.optimiser.zero()
            total = torch.zeros(len(TERMS), device=self.device)
            with seeded(seed, "step", str(place), rank):
                for part in np.array_split(rows[self.group.part(len(rows))], self.training.accumulation):
                    if len(part):
                        losses = self._losses(part, {m: bits[part] for m, bits in shown.items()})
                        share = losses.sum(1) / len(rows)
                        share[0].backward()  # type: ignore[no-untyped-call]
                        total += share.detach()
            if self.group.size > 1:  # every parameter gets a gradient, so that all processes add up the same ones
                for parameter in self.network.parameters():
                    if parameter.requires_grad and parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
            self.optimiser.step(place, self.group)
            values.append(total)
            sizes.append(len(rows))
        table = self.group.sum(torch.stack(values)).double().cpu().numpy()
        return mean_of_terms(table, sizes, TERMS, number)

    def _losses(self, index: Array, shown: dict[str, Array]) -> Tensor:
        """Return each of the terms for each row (terms × rows)."""
        rows = self.rows.take(torch.from_numpy(index).to(self.device))
        available = {m: torch.from_numpy(bits).to(self.device) for m, bits in shown.items()}
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.mixed_precision):
            output = self.network(rows.features, available).float()
        task = task_loss(output, rows.labels, self.task)
        own = own_method(self.network, "loss")
        total = task if own is None else own(output, rows.labels, rows.features, available)
        return torch.stack([total, task])


def _batches(order: Array, size: int) -> Iterator[Array]:
    """Yield the rows of each step; a single row that is left over joins the last step, as BatchNorm needs two."""
    ends = list(range(size, len(order) - 1, size)) if size > 1 else list(range(1, len(order)))
    return iter(np.split(order, ends))

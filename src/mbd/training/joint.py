"""Training of the joint backbone: SGD on the objective, and the epoch that was best on the valid split.

While training, each modality of each row is hidden with probability `modality_dropout`, so that a missing input is
nothing new at test time.

Border cases need no special treatment: a modality that is constant, or that no train row has, is zero once
standardised and adds nothing; with one class, or with equal train labels, the model learns to predict just that.

The linear map beside the networks is computed before the first epoch (:mod:`mbd.training.linear`), from the rows of
`model.joint.splits`, and stays. The networks learn the labels by themselves, not what the map leaves over, because its
errors on train rows are too small; so is their epoch chosen by themselves. The squared error of a mean of predictors is
at most the mean of their errors.

Fine-tuning continues from given weights with the same objective and draws; the linear map and the scaling of inputs and
labels are fitted again to the data given.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from mbd.features.contract import FeatureSet
from mbd.formats.model import JointSpec, ModelRecord
from mbd.model.joint import empty_network, provenance, to_tensor_dict
from mbd.model.networks import JointNetwork
from mbd.params import Params, params_digest
from mbd.tensors import Array
from mbd.training.data import RawRows, initial_scaling, rows_with_something
from mbd.training.distributed import ProcessGroup, join_group
from mbd.training.draws import Step, initial_weights, steps_of_epoch
from mbd.training.linear import linear_map
from mbd.training.loop import TrainingRun, as_tensors, finetuning, mean_of_terms
from mbd.training.objective import TERMS, Batch, forward, objective
from mbd.training.optimiser import Optimiser
from mbd.training.reproducibility import choose_device, reproducible
from mbd.training.trained import Trained, model_record, recorded_params, recorded_training


def train_joint(feature_set: FeatureSet, params: Params, *, work: Path, progress: bool) -> Trained:
    """Train on `feature_set`; `work` keeps the snapshot from which a killed run continues."""
    group = join_group()
    with reproducible(params.training.threads):
        run = JointRun(feature_set, params, group)
        tensors = run.train(work, progress)
    spec = JointSpec(**params.model.joint.model_dump(), training=recorded_training(params.training))
    seen = provenance(tensors, feature_set.modalities)
    record = model_record(feature_set, "joint", spec.model_dump(mode="json"), params.training.seed, seen)
    return Trained(record, tensors, run.state.history)


class JointRun(TrainingRun):
    """One training of the paper's networks."""

    network: JointNetwork

    def __init__(self, feature_set: FeatureSet, params: Params, group: ProcessGroup) -> None:
        feature_set.require_vectors("joint")
        train, valid = (rows_with_something(feature_set, split) for split in ("train", "valid"))
        manifest, classes = feature_set.manifest, len(feature_set.manifest.classes)
        task, training, self.shape = manifest.task, params.training, params.model.joint
        device = choose_device(training.device, group.local_rank)
        network = empty_network(feature_set.modalities, max(classes, 1), self.shape).to_empty(device="cpu")
        shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
        scaling = initial_scaling(train, task)
        fit_valid = self.shape.splits == "train+valid"
        fitted = linear_map(train, valid, scaling, classes, fit_valid=fit_valid) if self.shape.linear_share else {}
        weights = initial_weights(training.seed, shapes)
        network.load_state_dict(as_tensors(weights | scaling | fitted), strict=False)
        network.to(device)
        for name in network.in_closed_form():
            network.get_parameter(name).requires_grad_(False)
        self.steps_per_epoch = -(-len(train) // training.batch_size)
        properties = [f"modality.{m}.property" for m in manifest.modalities]
        optimiser = Optimiser(network, training, self.steps_per_epoch * training.epochs, properties)
        super().__init__(network, optimiser, RawRows.of(valid, task, device), task, training, group)
        self.rows, self.bits = RawRows.of(train, task, device), dict(train.available)
        self.snapshot_key = self.key(params_digest(self.shape), feature_set)

    def answers(self, rows: RawRows) -> Tensor:
        """Return what the networks answer without the linear map, which is the same in every epoch."""
        return self.network.to_labels(self.network.head(self.network.embed(rows.features, rows.available)))

    def epoch(self, number: int) -> dict[str, float]:
        """Train one epoch; return the mean of every term over its rows."""
        steps = steps_of_epoch(
            self.training.seed,
            number,
            self.bits,
            batch_size=self.training.batch_size,
            fusion=(
                (sum(self.network.modalities.values()), self.shape.input_dropout),
                (self.shape.hidden, self.shape.dropout),
            ),
            modality_dropout=self.training.modality_dropout,
        )
        values, sizes = [], []
        for place, step in enumerate(steps, start=number * self.steps_per_epoch):
            batch = self._batch(step)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.training.mixed_precision):
                outputs = forward(self.network, batch, self.group.part(len(batch)))
            terms = objective(outputs, batch, self.network, self.task, self.group)
            self.optimiser.zero()
            terms["total"].backward()  # type: ignore[no-untyped-call]
            self.optimiser.step(place, self.group)
            values.append(torch.stack([terms[name].detach() for name in TERMS]))
            sizes.append(len(batch))
        table = self.group.sum(torch.stack(values)).double().cpu().numpy()
        return mean_of_terms(table, sizes, TERMS, number)

    def _batch(self, step: Step) -> Batch:
        """Return the rows of one step, on the scale on which they are learnt."""

        def on_device(array: Array) -> Tensor:
            return torch.from_numpy(array).to(self.device)

        rows = self.rows.take(on_device(step.rows))
        labels = rows.labels
        if self.task == "regression":
            labels = (labels - self.network.label_mean) / self.network.label_scale
        inputs, hidden = map(on_device, step.masks)
        return Batch(
            inputs=self.network.standardise(rows.features, rows.available),
            available=rows.available,
            shown={m: on_device(bits) for m, bits in step.shown.items()},
            labels=labels,
            masks=(inputs, hidden),
        )


def finetune(
    record: ModelRecord,
    tensors: Mapping[str, Array],
    feature_set: FeatureSet,
    params: Params,
    *,
    epochs: int | Literal["auto"],
) -> tuple[dict[str, Array], list[dict[str, float]]]:
    """Return the weights after `epochs` epochs on `feature_set`, which has the model's modalities, and the losses."""
    if list(feature_set.modalities.items()) != list(record.modalities.items()):
        raise ValueError(f"the model takes {dict(record.modalities)}, the data has {feature_set.modalities}")
    training = finetuning(params.training, epochs)
    model = recorded_params(record, params).model
    with reproducible(training.threads):
        run = JointRun(feature_set, params.model_copy(update={"model": model, "training": training}), ProcessGroup())
        weights = {name: tensors[name] for name, p in run.network.named_parameters() if p.requires_grad}
        run.network.load_state_dict(as_tensors(weights), strict=False)
        run.finetune(epochs)
    return run.state.best or to_tensor_dict(run.network), run.state.history

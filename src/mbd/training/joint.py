"""Training of the joint backbone: SGD on the objective, and the epoch that was best on the valid split.

While training, each modality of each row is hidden with probability `modality_dropout`, so that a missing input is
nothing new at test time. The best epoch is the one of least MAE (cross-entropy for classes) on the valid rows as they
are.

Border cases need no special treatment: a modality that is constant, or that no train row has, is zero once
standardised and adds nothing; with one class, or with equal train labels, the model learns to predict just that.

Fine-tuning continues from given weights with the same objective and draws; the scaling of inputs and labels is fitted
again to the data given.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mbd import __version__
from mbd.errors import MbdError
from mbd.features.contract import FeatureSet
from mbd.files import canonical_digest
from mbd.formats.model import ModelRecord
from mbd.logs import progress_bar
from mbd.model.joint import empty_network, provenance, to_tensor_dict
from mbd.model.losses import task_loss
from mbd.model.networks import JointNetwork
from mbd.params import Params, params_digest
from mbd.params.features import Task
from mbd.params.learning import JointSettings
from mbd.tensors import Array
from mbd.training.data import RawRows, TrainingRows, initial_scaling, rows_with_something
from mbd.training.distributed import ProcessGroup, join_group
from mbd.training.draws import initial_weights, steps_of_epoch
from mbd.training.objective import TERMS, forward, objective
from mbd.training.optimiser import Optimiser
from mbd.training.reproducibility import choose_device, reproducible
from mbd.training.resume import Snapshots, TrainingState
from mbd.training.trained import Trained, data_record


def train_joint(feature_set: FeatureSet, params: Params, *, work: Path, progress: bool) -> Trained:
    """Train on `feature_set`; `work` keeps the snapshot from which a killed run continues."""
    group = join_group()
    with reproducible(params.training.threads):
        run = JointRun(feature_set, params, group)
        snapshots = Snapshots(work, run.key)
        run.start(snapshots)
        run.finish(snapshots, progress)
        tensors = run.state.best
    manifest = feature_set.manifest
    record = ModelRecord(
        backbone="joint",
        spec=params.model.joint.model_dump(mode="json"),
        task=manifest.task,
        classes=manifest.classes,
        label_range=manifest.label_range,
        modalities=manifest.modalities,
        seed=str(params.training.seed),
        data=data_record(feature_set),
        tensors=provenance(tensors, manifest.modalities),
        sha256="",
    )
    return Trained(record, tensors, run.state.history)


class JointRun:
    """One training: the network, its data, and its progress."""

    def __init__(self, feature_set: FeatureSet, params: Params, group: ProcessGroup) -> None:
        manifest, train = feature_set.manifest, rows_with_something(feature_set, "train")
        self.task: Task = manifest.task
        self.training, self.shape, self.group = params.training, params.model.joint, group
        self.device = choose_device(params.training.device, group.local_rank)
        self.network = _new_network(manifest.modalities, max(len(manifest.classes), 1), params)
        self.network.load_state_dict(as_tensors(initial_scaling(train, self.task)), strict=False)
        self.network.to(self.device)
        self.rows = TrainingRows.of(train, self.network, self.task, self.device)
        self.valid = RawRows.of(rows_with_something(feature_set, "valid"), self.task, self.device)
        self.steps_per_epoch = -(-len(train) // params.training.batch_size)
        self.optimiser = Optimiser(self.network, params.training, self.steps_per_epoch * params.training.epochs)
        self.state = TrainingState()
        self.key = canonical_digest(
            {
                "model": params_digest(params.model.joint),
                "training": params_digest(params.training),
                "data": feature_set.digests(),
                "processes": group.size,
                "device": self.device.type,
                "versions": [__version__, torch.__version__, np.__version__],
            }
        )

    @property
    def criterion(self) -> str:
        """The error on the valid split by which an epoch is chosen."""
        return "valid_cross_entropy" if self.task == "classification" else "valid_mae"

    def start(self, snapshots: Snapshots) -> None:
        """Continue from the snapshot, if every process has the same one."""
        found = snapshots.load()
        done = len(found.history) if found else 0
        least, most = self.group.smallest(done, self.device), -self.group.smallest(-done, self.device)
        if found and least == most:
            self.network.load_state_dict(as_tensors(found.weights))
            self.optimiser.restore(found.momentum)
            self.state = found

    def finish(self, snapshots: Snapshots, progress: bool) -> None:
        """Train the epochs that are left."""
        done, epochs = len(self.state.history), self.training.epochs
        shown = progress and self.group.rank == 0
        with progress_bar(total=epochs, initial=done, desc="training", unit="epoch", shown=shown) as bar:
            for epoch in range(done, epochs):
                row = {"epoch": epoch, **self._epoch(epoch), self.criterion: self._valid_score(epoch)}
                best = min((old[self.criterion] for old in self.state.history), default=float("inf"))
                self.state.history.append(row)
                if row[self.criterion] < best:
                    self.state.best = to_tensor_dict(self.network)
                if (epoch + 1) % self.training.snapshot_epochs == 0 and epoch + 1 < epochs and self.group.rank == 0:
                    self.state.weights = to_tensor_dict(self.network)
                    self.state.momentum = self.optimiser.momentum()
                    snapshots.save(self.state)
                bar.set_postfix({name: f"{row[name]:.3g}" for name in ("total", "task", self.criterion)}, refresh=False)
                bar.update()

    def _epoch(self, epoch: int) -> dict[str, float]:
        """Train one epoch; return the mean of every term over its rows."""
        steps = steps_of_epoch(
            self.training.seed,
            epoch,
            self.rows.bits,
            batch_size=self.training.batch_size,
            fusion=(
                (sum(self.network.modalities.values()), self.shape.input_dropout),
                (self.shape.hidden, self.shape.dropout),
            ),
            modality_dropout=self.training.modality_dropout,
        )
        values, sizes = [], []
        for number, step in enumerate(steps, start=epoch * self.steps_per_epoch):
            batch = self.rows.batch(step)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self._mixed):
                outputs = forward(self.network, batch, self.group.part(len(batch)))
            terms = objective(outputs, batch, self.network, self.task, self.group)
            self.optimiser.step(number, terms["total"], self.group)
            values.append(torch.stack([terms[name].detach() for name in TERMS]))
            sizes.append(len(batch))
        table = self.group.sum(torch.stack(values)).double().cpu().numpy()
        _refuse_non_finite(table, epoch)
        return dict(zip(TERMS, np.average(table, axis=0, weights=sizes).tolist(), strict=True))

    @property
    def _mixed(self) -> bool:
        return self.training.mixed_precision and self.device.type == "cuda"

    def _valid_score(self, epoch: int) -> float:
        with torch.inference_mode():
            output = self.network(self.valid.features, self.valid.available)
            if self.task == "classification":
                score = float(task_loss(output, self.valid.labels, self.task).mean())
            else:
                score = float((output[:, 0] - self.valid.labels).abs().mean())
        if not np.isfinite(score):
            raise _not_finite(f"the error on the valid split ({self.criterion})", f"after epoch {epoch}", score)
        return score


def _new_network(modalities: dict[str, int], outputs: int, params: Params) -> JointNetwork:
    network = empty_network(modalities, outputs, params.model.joint).to_empty(device="cpu")
    shapes = {name: tuple(parameter.shape) for name, parameter in network.named_parameters()}
    network.load_state_dict(as_tensors(initial_weights(params.training.seed, shapes)), strict=False)
    return network


def as_tensors(arrays: dict[str, Array]) -> dict[str, Tensor]:
    """Return copies of arrays as tensors, by the same names."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _refuse_non_finite(table: Array, epoch: int) -> None:
    """Name the first step, and in it the term, whose value is not a number; the sums come last."""
    bad = ~np.isfinite(table)
    if not bad.any():
        return
    step = int(bad.any(axis=1).argmax())
    causes = [name for name, is_bad in zip(TERMS, bad[step], strict=True) if is_bad]
    parts = [name for name in causes if name not in ("total", "property")] or causes
    raise _not_finite(
        f"the loss ({', '.join(parts)})", f"epoch {epoch}, step {step}", table[step, TERMS.index(parts[0])]
    )


def _not_finite(what: str, where: str, value: float) -> MbdError:
    return MbdError(
        f"{what} is not a finite number",
        key=where,
        value=value,
        hint="lower training.learning_rate or training.clip_norm, or raise training.warmup_steps",
    )


def finetune(
    record: ModelRecord, tensors: Mapping[str, Array], feature_set: FeatureSet, params: Params, *, epochs: int
) -> tuple[dict[str, Array], list[dict[str, float]]]:
    """Return the weights after `epochs` epochs on `feature_set`, which has the model's modalities, and the losses."""
    if list(feature_set.modalities.items()) != list(record.modalities.items()):
        raise ValueError(f"the model takes {dict(record.modalities)}, the data has {feature_set.modalities}")
    # No snapshot is ever due: it would write weights to the disk that no record lists.
    training = params.training.model_copy(update={"epochs": epochs, "snapshot_epochs": max(epochs, 1)})
    model = params.model.model_copy(update={"joint": JointSettings.model_validate(record.spec)})
    with reproducible(training.threads):
        run = JointRun(feature_set, params.model_copy(update={"model": model, "training": training}), ProcessGroup())
        weights = {name: tensors[name] for name, _ in run.network.named_parameters()}
        run.network.load_state_dict(as_tensors(weights), strict=False)
        run.finish(Snapshots(Path(), run.key), progress=False)
    return run.state.best or to_tensor_dict(run.network), run.state.history

"""The training loop of every network: epochs with snapshots, and the one that was best on the valid split.

The best epoch is the one of least MAE (cross-entropy for classes) on the valid rows as they are. What an epoch does is
said by :class:`TrainingRun`'s subclasses, one for each objective.

A killed training continues from its last snapshot, and ends with the bytes of an undisturbed one. A snapshot is one
safetensors file, written whole or not at all: the weights, the momentum, the best weights so far and, as JSON, the
losses of the epochs done. All draws depend on the epoch alone, so there is no random state to keep. A snapshot is used
only by a run with the same parameters, data, number of processes and versions: they make its key.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.numpy import save
from torch import Tensor, nn

from mbd import __version__
from mbd.errors import DataError, MbdError, UsageError
from mbd.features.contract import FeatureSet
from mbd.files import canonical_digest, write_file
from mbd.formats.features import Task
from mbd.logs import progress_bar
from mbd.model.contract import evaluating
from mbd.model.joint import to_tensor_dict
from mbd.params import params_digest
from mbd.params.learning import TrainingSettings
from mbd.tensors import Array, open_tensors
from mbd.training.data import RawRows
from mbd.training.distributed import ProcessGroup
from mbd.training.objective import task_loss
from mbd.training.optimiser import Optimiser

_STATE = "state"
_TENSORS = ("weights", "momentum", "best")


@dataclass
class TrainingState:
    """How far a training has come."""

    weights: dict[str, Array] = field(default_factory=dict)
    momentum: dict[str, Array] = field(default_factory=dict)
    best: dict[str, Array] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


class Snapshots:
    """The snapshot of one training, in one file."""

    def __init__(self, folder: Path, key: str) -> None:
        self._file, self._key = folder / "snapshot.safetensors", key

    def save(self, training_state: TrainingState) -> None:
        """Replace the snapshot by `state`."""
        state = json.dumps({"key": self._key, "history": training_state.history})
        tensors = {_STATE: np.frombuffer(state.encode(), np.uint8)}
        for kind in _TENSORS:
            group = getattr(training_state, kind)
            tensors |= {f"{kind}/{name}": np.ascontiguousarray(tensor) for name, tensor in group.items()}
        write_file(self._file, save(tensors))

    def load(self) -> TrainingState | None:
        """Return the snapshot of this training, or None if there is none."""
        if not self._file.is_file():
            return None
        try:
            tensors = {name: np.array(tensor) for name, tensor in open_tensors(self._file).items()}
            state = json.loads(tensors.pop(_STATE).tobytes())
        except (DataError, KeyError, ValueError):
            return None
        if state["key"] != self._key:
            return None
        training_state = TrainingState(history=state["history"])
        for path, tensor in tensors.items():
            kind, _, name = path.partition("/")
            getattr(training_state, kind)[name] = tensor
        return training_state


_ROWS_AT_ONCE = 1024
_PATIENCE = 5  # epochs without a new best one after which automatic fine-tuning stops


class TrainingRun(ABC):
    """One training: a network, its optimiser, the valid rows, and its progress."""

    snapshot_key: str

    def __init__(
        self,
        network: nn.Module,
        optimiser: Optimiser,
        valid: RawRows,
        task: Task,
        training: TrainingSettings,
        group: ProcessGroup,
    ) -> None:
        self.network, self.optimiser, self.valid = network, optimiser, valid
        self.task, self.training, self.group = task, training, group
        self.device = valid.labels.device
        if training.mixed_precision and self.device.type != "cuda":
            raise UsageError(
                "products in bfloat16 need a GPU: many CPUs cannot take them, and others round them differently",
                key="training.mixed_precision",
                value="true",
                hint="set training.mixed_precision=false, or train where training.device=cuda can be used",
            )
        self.state = TrainingState()

    @abstractmethod
    def epoch(self, number: int) -> dict[str, float]:
        """Train one epoch; return the mean of every term of the loss over its rows."""

    def key(self, model: object, feature_set: FeatureSet) -> str:
        """Return the digest of everything that a snapshot depends on."""
        return canonical_digest(
            {
                "model": model,
                "training": params_digest(self.training),
                "data": feature_set.digests(),
                "processes": self.group.size,
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
        snapshot = snapshots.load()
        done = len(snapshot.history) if snapshot else 0
        least, most = self.group.smallest(done, self.device), -self.group.smallest(-done, self.device)
        if snapshot and least == most:
            self.network.load_state_dict(as_tensors(snapshot.weights))
            self.optimiser.restore(snapshot.momentum)
            self.state = snapshot

    def train(self, work: Path, progress: bool) -> dict[str, Array]:
        """Train, from the snapshot in `work` on if there is one; return the best weights."""
        snapshots = Snapshots(work, self.snapshot_key)
        self.start(snapshots)
        self.finish(snapshots, progress)
        return self.state.best

    def finish(self, snapshots: Snapshots, progress: bool, *, patience: int | None = None) -> None:
        """Train the epochs that are left, or until the best one is `patience` epochs ago."""
        done, epochs = len(self.state.history), self.training.epochs
        shown = progress and self.group.rank == 0
        with progress_bar(total=epochs, initial=done, desc="training", unit="epoch", shown=shown) as bar:
            for epoch in range(done, epochs):
                row = {"epoch": epoch, **self.epoch(epoch), self.criterion: self._valid_score(epoch)}
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
                scores = [old[self.criterion] for old in self.state.history]
                if patience and len(scores) - 1 - int(np.argmin(scores)) >= patience:
                    break

    def finetune(self, epochs: int | Literal["auto"]) -> None:
        """Train as :func:`finetuning` has set it up."""
        # No snapshot is ever due: it would write weights to the disk that no record lists.
        self.finish(Snapshots(Path(), ""), progress=False, patience=_PATIENCE if epochs == "auto" else None)

    def _valid_score(self, epoch: int) -> float:
        with evaluating(self.network), torch.inference_mode():
            errors = torch.cat([self._errors(part) for part in self.valid.parts(_ROWS_AT_ONCE)])
        score = float(errors.mean())
        if not np.isfinite(score):
            raise _not_finite(f"the error on the valid split ({self.criterion})", f"after epoch {epoch}", score)
        return score

    def answers(self, rows: RawRows) -> Tensor:
        """Return what is compared with the labels of valid rows."""
        output: Tensor = self.network(rows.features, rows.available)
        return output

    def _errors(self, rows: RawRows) -> Tensor:
        output = self.answers(rows)
        if self.task == "classification":
            return task_loss(output, rows.labels, self.task)
        return (output[:, 0] - rows.labels).abs()


def finetuning(training: TrainingSettings, epochs: int | Literal["auto"]) -> TrainingSettings:
    """Return the settings of a fine-tuning: of so many epochs, or (`auto`) of at most as many as a training has."""
    most = training.epochs if epochs == "auto" else epochs
    return training.model_copy(update={"epochs": most, "snapshot_epochs": max(most, 1)})


def as_tensors(arrays: dict[str, Array]) -> dict[str, Tensor]:
    """Return copies of arrays as tensors, by the same names."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def mean_of_terms(table: Array, sizes: Sequence[int], terms: Sequence[str], epoch: int) -> dict[str, float]:
    """Return the mean of each term (column) over the steps (rows), weighted by their sizes.

    Raises:
        MbdError: A term is not a finite number; it names the first step, and in it the term.

    """
    bad = ~np.isfinite(table)
    if not bad.any():
        return dict(zip(terms, np.average(table, axis=0, weights=sizes).tolist(), strict=True))
    step = int(bad.any(axis=1).argmax())
    causes = [name for name, is_bad in zip(terms, bad[step], strict=True) if is_bad]
    parts = [name for name in causes if name not in ("total", "property")] or causes  # sums come last
    raise _not_finite(
        f"the loss ({', '.join(parts)})", f"epoch {epoch}, step {step}", table[step, terms.index(parts[0])]
    )


def _not_finite(what: str, where: str, value: float) -> MbdError:
    return MbdError(
        f"{what} is not a finite number",
        key=where,
        value=value,
        hint="lower training.learning_rate or training.clip_norm, or raise training.warmup_steps",
    )

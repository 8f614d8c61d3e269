"""Training of a lattice of networks: each tag's on the rows that have it, in several processes side by side.

A tag has K + 1 trainings: without each fold in turn, which gives the out-of-fold error σ by which modules are blended,
and on all its rows, which gives the network that is kept. Each training draws from a stream of its own, named by tag
and fold, reads no modality outside its tag, and runs in one process; so for every m, training without m gives the same
bytes for every network that is left, whatever the number of processes. What is finished is kept in `work`: a killed run
goes on with the rest.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mbd.background import process_map
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.formats.features import Manifest
from mbd.formats.model import LatticeSpec, Tag, TensorRecord
from mbd.logs import progress_bar
from mbd.model.deep_lattice import NETWORK, member_architecture, refuse_fixed_shape
from mbd.model.module import ModuleBackbone
from mbd.params.learning import TrainingSettings
from mbd.randomness import stream_seed
from mbd.tensors import Array
from mbd.training.distributed import ProcessGroup
from mbd.training.lattice.module import name_tensors
from mbd.training.lattice.ridge import assign_folds
from mbd.training.loop import Snapshots, TrainingState, as_tensors
from mbd.training.module import ModuleRun
from mbd.training.reproducibility import reproducible


@dataclass(frozen=True)
class Training:
    """What the trainings of one lattice have in common."""

    folder: Path
    """of the FeatureSet"""
    manifest: Manifest
    spec: LatticeSpec
    seed: int
    processes: int
    device: str

    @classmethod
    def of(cls, data: FeatureSet, spec: LatticeSpec, seed: int, settings: TrainingSettings) -> "Training":
        """Return the trainings of a lattice on this data, in as many processes as the settings say."""
        return cls(data.folder, data.manifest, spec, seed, settings.processes, settings.device)

    def settings(self, tag: Tag, fold: int | None) -> TrainingSettings:
        """Return the settings of one network; a member always has its whole tag, so nothing is hidden from it."""
        seed = stream_seed(self.seed, "lattice", "network", *tag, "all" if fold is None else str(fold)) % 2**53
        own = {**self.spec.training, "seed": seed, "device": self.device, "modality_dropout": 0.0}
        return TrainingSettings.model_validate(own)


@dataclass(frozen=True)
class _Task:
    """One network to train: on which rows, and for which rows it then predicts."""

    training: Training
    tag: Tag
    fold: int | None
    train: Array
    valid: Array
    left_out: Array
    work: Path


def train_networks(
    training: Training,
    tags: Collection[Tag],
    *,
    work: Path,
    progress: bool = False,
) -> tuple[dict[str, Array], dict[str, TensorRecord], list[dict[str, float | str]]]:
    """Train the networks of those tags that enough rows have; return their tensors, provenance and report."""
    refuse_fixed_shape(training.spec, tags, training.manifest.classes)
    plans = {tag: plan for tag in tags if (plan := _plan(training, tag)) is not None}
    tasks = [task for tag in sorted(plans, key=len, reverse=True) for task in plans[tag].tasks(training, work)]
    results: dict[tuple[Tag, int | None], tuple[dict[str, Array], Array]] = {}
    with (
        process_map(training.processes) as mapped,
        progress_bar(total=len(tasks), desc="networks", shown=progress) as bar,
    ):
        for task, result in zip(tasks, mapped(_train, tasks), strict=True):
            results[task.tag, task.fold] = result
            bar.update()
    modules: dict[Tag, dict[str, Array]] = {}
    report: list[dict[str, float | str]] = []
    for tag, plan in plans.items():
        predicted = np.zeros(plan.targets.shape)
        for fold in plan.folds:
            predicted[plan.of_fold == fold] = results[tag, fold][1]
        error = max(float(np.sqrt(((plan.targets - predicted) ** 2).mean())), 1e-12)
        kept = {f"{NETWORK}{name}": tensor for name, tensor in results[tag, None][0].items()}
        kept |= {"sigma": np.array(error), "rows": np.array(len(plan.rows))}
        modules[tag] = dict(sorted(kept.items()))
        report.append({"tag": "+".join(tag), "rows": float(len(plan.rows)), "rmse": error})
    return *name_tensors(modules), report


@dataclass(frozen=True)
class _Plan:
    """The rows of one tag."""

    tag: Tag
    rows: Array
    """train rows that have it"""
    of_fold: Array
    """the fold of each of them"""
    valid: Array
    """valid rows that have it"""
    targets: Array
    """labels of its train rows, or ones at their classes (n × outputs)"""

    @property
    def folds(self) -> list[int]:
        """Folds that have such rows."""
        return [int(fold) for fold in np.unique(self.of_fold)]

    def tasks(self, training: Training, work: Path) -> Iterator[_Task]:
        """Yield the training on all rows, and those without one fold each."""
        for fold in (None, *self.folds):
            out = self.of_fold == fold if fold is not None else np.zeros(len(self.rows), bool)
            folder = work / f"{'+'.join(self.tag)}.{'all' if fold is None else fold}"
            yield _Task(training, self.tag, fold, self.rows[~out], self.valid, self.rows[out], folder)


def _plan(training: Training, tag: Tag) -> _Plan | None:
    """Return the rows of a tag, or None if it has too few to be trained and judged."""
    data = _data(training, tag)
    train, valid = data.split("train"), data.split("valid")
    folds = assign_folds(train.groups, training.spec.folds, training.seed)
    rows, chosen_by = (np.flatnonzero(np.all([s.available[m] for m in tag], axis=0)) for s in (train, valid))
    if len(np.unique(folds[rows])) < 2 or not len(chosen_by):
        if len(tag) == 1:
            raise DataError(
                f"too few rows have the modality {tag[0]} to train a network for it",
                key=tag[0],
                value=f"{len(rows)} train rows, {len(chosen_by)} valid rows",
                hint=f"train with --without {tag[0]}",
            )
        return None
    classes, labels = len(training.manifest.classes), np.array(train.labels)[rows]
    targets = np.eye(classes)[labels] if classes else labels.astype(np.float64)[:, None]
    return _Plan(tag, rows, folds[rows], chosen_by, targets)


def _data(training: Training, tag: Tag) -> FeatureSet:
    """Return the data as if it had the modalities of a tag alone: no byte of the others is read."""
    others = tuple(m for m in FeatureSet.open(training.folder).modalities if m not in tag)
    return FeatureSet.open(training.folder, without=others)


def _train(task: _Task) -> tuple[dict[str, Array], Array]:
    """Return the weights of one network, and its predictions for the rows that were left out."""
    training, spec = task.training, task.training.spec
    settings = training.settings(task.tag, task.fold)
    data = _data(training, task.tag)
    architecture = member_architecture(spec, task.tag, training.manifest.classes)
    with reproducible(settings.threads):
        rows = {"train": data.split("train").take(task.train), "valid": data.split("valid").take(task.valid)}
        run = ModuleRun(architecture, data, settings, ProcessGroup(), **{k: _whole(r) for k, r in rows.items()})
        snapshots = Snapshots(task.work, run.key([spec.to_plain(), task.tag, task.fold, task.train.tolist()], data))
        run.start(snapshots)
        if len(run.state.history) < settings.epochs:
            run.finish(snapshots, progress=False)
            snapshots.save(TrainingState(run.state.best, {}, run.state.best, run.state.history))
        best = run.state.best
        if task.fold is None:
            return best, np.zeros((0, 1))
        run.network.load_state_dict(as_tensors(best))
        left_out = _whole(data.split("train").take(task.left_out))
        backbone = ModuleBackbone(run.network.cpu(), architecture, training.manifest.task)
        scores = backbone.predict(left_out.inputs(), left_out.available)
        return {}, scores.reshape(len(scores), -1)


def _whole(rows: Rows) -> Rows:
    """Return rows that have every modality of a tag."""
    return Rows.of(rows.ids, rows.labels, rows.features, groups=rows.groups, lengths=rows.lengths)

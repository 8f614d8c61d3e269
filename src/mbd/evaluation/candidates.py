"""The models of an evaluation: each folder one method, a model for each of its seeds, and the data they share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.files import MODEL
from mbd.model.compatible import open_for
from mbd.model.predictor import Model, load


@dataclass(frozen=True)
class Candidate:
    """One method to evaluate: its folders and its models, by seed."""

    name: str
    folders: dict[str, Path]
    models: dict[str, Model]

    @property
    def first(self) -> Model:
        """The model of the first seed, for what is looked at in one model only."""
        return next(iter(self.models.values()))


def open_candidates(folders: Sequence[Path]) -> list[Candidate]:
    """Load the models of every folder."""
    return [_open(name, folder) for name, folder in zip(method_names(folders), folders, strict=True)]


def method_names(folders: Sequence[Path]) -> list[str]:
    """Name each folder by as few of its last parts as make all names different."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise UsageError("the same model is given twice", key="--model", value=", ".join(map(str, folders)))
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise AssertionError("different paths differ in some part")


def seed_folders(folder: Path) -> list[Path]:
    """Return the folders of the models in `folder`: itself, or those named `seed-…` in it."""
    if (folder / MODEL).is_file():
        return [folder]
    return sorted(record.parent for record in folder.glob(f"seed-*/{MODEL}"))


def shared_data(features: Path, candidates: Sequence[Candidate]) -> tuple[FeatureSet, list[str]]:
    """Open the data with the modalities that every model takes; return also the names of the others."""
    everything = FeatureSet.open(features)
    kept = set(everything.modalities)
    for candidate in candidates:
        kept &= set(open_for(candidate.first.record, features).modalities)
    left_out = [m for m in everything.modalities if m not in kept]
    if not kept:
        raise DataError(
            "the models have no modality in common",
            value="; ".join(f"{c.name}: {', '.join(c.first.modalities)}" for c in candidates),
            hint="evaluate them one by one",
        )
    return FeatureSet.open(features, without=tuple(left_out)), left_out


def _open(name: str, folder: Path) -> Candidate:
    folders = seed_folders(folder)
    if not folders:
        raise DataError(
            "this is not a model folder: it has neither model.json nor seed-*/model.json",
            file=folder,
            hint="`mbd train` makes one",
        )
    models = [load(path) for path in folders]
    records = [(model, model.record) for model in models]
    kinds = {(r.backbone, r.task, r.classes, tuple(r.modalities.items()), r.revoked): model for model, r in records}
    if len(kinds) > 1:
        raise DataError(
            "the seeds of one method must be models of one kind",
            file=folder,
            value="; ".join(f"{m.record.backbone} on {', '.join(m.modalities)}" for m in kinds.values()),
            hint="give models of different kinds as methods of their own, each with --model",
        )
    by_seed = {model.record.seed: (path, model) for path, model in zip(folders, models, strict=True)}
    if len(by_seed) < len(folders):
        raise DataError("two models have the same seed", file=folder, value=", ".join(m.record.seed for m in models))
    ordered = sorted(by_seed, key=lambda seed: (len(seed), seed))
    return Candidate(name, {s: by_seed[s][0] for s in ordered}, {s: by_seed[s][1] for s in ordered})

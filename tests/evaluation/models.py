"""Tiny models that are really trained, in folders as `mbd train` leaves them."""

import csv
from pathlib import Path

from mbd.features.contract import FeatureSet
from mbd.model.checkpoint import load_model, save_model
from mbd.params import load_params
from mbd.training.joint import train_joint

TINY = (
    "model.joint.hidden=16",
    "model.joint.embedding=8",
    "model.joint.property_dim=8",
    "training.epochs=2",
    "training.threads=1",
)


def tiny_model(features: Path, folder: Path, *settings: str, without: tuple[str, ...] = ()) -> Path:
    """Train a joint model on a FeatureSet; settings go on top."""
    params = load_params(None, [*TINY, *settings])
    data = FeatureSet.open(features, without=without)
    trained = train_joint(data, params, work=folder / "work", progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, trained.record, trained.tensors)
    with (folder / "history.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(trained.history[0]))
        writer.writeheader()
        writer.writerows(trained.history)
    return folder


def as_revoked(folder: Path, out: Path, modality: str) -> Path:
    """Copy a model that was trained without `modality`, and record that it was deleted."""
    record, tensors = load_model(folder)
    out.mkdir(parents=True)
    save_model(out, record.model_copy(update={"revoked": (modality,)}), tensors)
    return out

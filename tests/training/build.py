"""Small data that can be learnt from, and parameters of a small joint model."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from mbd.features.contract import FeatureSet, write_manifest, write_splits
from mbd.features.rows import Collection, Rows
from mbd.formats.features import CalibrationEntry
from mbd.formats.model import ModelRecord
from mbd.model.joint import JointBackbone, from_tensors
from mbd.model.predictor import Model
from mbd.params import Params, load_params
from mbd.tensors import Array
from mbd.training.trained import Trained

DIMS = {"text": 7, "audio": 4, "visual": 5}
SIZES = {"train": 107, "valid": 40, "test": 48}
SMALL = [
    *("model.joint.hidden=16", "model.joint.embedding=8", "model.joint.property_dim=6"),
    *("model.joint.dropout=0.1", "model.joint.input_dropout=0.1"),
    *("training.epochs=4", "training.batch_size=32", "training.warmup_steps=4", "training.snapshot_epochs=1"),
]


def small_params(*settings: str) -> Params:
    """Parameters of a small model; settings go on top."""
    return load_params(None, [*SMALL, *settings])


def joint_data(
    folder: Path, *, dims: dict[str, int] | None = None, classes: int = 0, missing: float = 0.25, seed: int = 0
) -> Path:
    """Write a FeatureSet in which every modality is a noisy view of the label, and some are missing."""
    dims = dims or DIMS
    rng = np.random.default_rng(seed)
    views = {m: rng.standard_normal((max(classes, 1), d)) for m, d in dims.items()}
    return rewritten(
        folder,
        {split: _rows(split, n, views, classes, missing, rng) for split, n in SIZES.items()},
        classes=classes,
    )


def rewritten(folder: Path, splits: dict[str, Rows], *, classes: int = 0) -> Path:
    """Write splits as a FeatureSet."""
    collection = Collection(
        name="small",
        task="classification" if classes else "regression",
        classes=tuple(f"c{k}" for k in range(classes)),
        splits=splits,
    )
    folder.mkdir(parents=True)
    digests = write_splits(folder, collection)
    calibration = CalibrationEntry(requested=0, used=0, carved_from=None)
    write_manifest(folder, collection, digests, label_range=(-3, 3), calibration=calibration, provenance={})
    return folder


def _rows(split: str, n: int, views: dict[str, Array], classes: int, missing: float, rng: np.random.Generator) -> Rows:
    labels: Array = rng.integers(0, classes, n) if classes else rng.uniform(-3, 3, n).astype(np.float32)
    signal = 2 * np.eye(classes)[labels] if classes else labels[:, None]
    available = {m: rng.random(n) >= missing for m in views}
    first = next(iter(views))
    available[first] |= ~np.any(list(available.values()), axis=0)
    features = {
        m: np.where(available[m][:, None], 3 + 2 * (signal @ view + rng.standard_normal((n, view.shape[1]))), 0)
        for m, view in views.items()
    }
    return Rows.of(
        [f"{split}{i}" for i in range(n)],
        labels,
        {m: x.astype(np.float32) for m, x in features.items()},
        available=available,
    )


def open_set(folder: Path, *without: str) -> FeatureSet:
    """Open a FeatureSet without some of its modalities."""
    return FeatureSet.open(folder, without=without)


def model_of(trained: Trained) -> Model:
    """The trained model, as if it had been saved and loaded."""
    return Model(trained.record, backbone_of(trained))


def backbone_of(trained: Trained) -> JointBackbone:
    """The backbone of a trained model."""
    return from_tensors(trained.record, trained.tensors)


def networks_alone(record: ModelRecord, tensors: Mapping[str, Array]) -> Model:
    """Return a joint model without the linear map beside its networks."""
    alone = record.model_copy(update={"spec": {**record.spec, "linear_share": 0.0}})
    gone = from_tensors(record, tensors).network.in_closed_form()
    return Model(alone, from_tensors(alone, {name: x for name, x in tensors.items() if name not in gone}))

"""What training returns, whatever the backbone, and the parameters with which it gives the same model again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from mbd.features.contract import FeatureSet
from mbd.formats.model import DataRecord, ModelRecord, TensorRecord
from mbd.params import Params
from mbd.params.learning import ModelSettings, TrainingSettings
from mbd.registry import BACKBONES
from mbd.tensors import Array

HISTORY = "history.csv"
"""in a model folder: how the training went, a line for each epoch or module"""


def recorded_training(training: TrainingSettings) -> dict[str, Any]:
    """Return what the bytes of a model depend on, of the settings of its training."""
    return training.model_dump(mode="json", exclude={"seed", "processes", "snapshot_epochs", "device"})


def recorded_params(record: ModelRecord, params: Params) -> Params:
    """Return the parameters with architecture, settings of the training (where recorded) and seed of a model."""
    known = BACKBONES.get(record.backbone).recorded(record.spec)
    model = ModelSettings.model_validate({"backbone": record.backbone, **known.model})
    training = {**params.training.model_dump(), **known.training, "seed": int(record.seed)}
    return params.model_copy(update={"model": model, "training": TrainingSettings.model_validate(training)})


_SPLITS = ("train", "valid", "calibration")


@dataclass(frozen=True)
class Trained:
    """A model, and how its training went: a row for each epoch (joint) or module (lattice)."""

    record: ModelRecord
    tensors: Mapping[str, Array]
    history: Sequence[Mapping[str, float | str]]


def model_record(
    feature_set: FeatureSet, backbone: str, spec: dict[str, Any], seed: int, tensors: Mapping[str, TensorRecord]
) -> ModelRecord:
    """Return the record of a model that was trained on the modalities of `feature_set`."""
    manifest = feature_set.manifest
    return ModelRecord(
        backbone=backbone,
        spec=spec,
        task=manifest.task,
        classes=manifest.classes,
        label_range=manifest.label_range,
        modalities=feature_set.modalities,
        seed=str(seed),
        data=data_record(feature_set),
        tensors=dict(tensors),
        sha256="",
    )


def data_record(feature_set: FeatureSet) -> DataRecord:
    """Return the name of the data and the digests of the files that a model is made from (not those of test)."""
    files = {name: d for name, d in feature_set.digests().items() if PurePosixPath(name).parts[1] in _SPLITS}
    return DataRecord(name=feature_set.manifest.name, files=files)

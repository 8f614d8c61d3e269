"""What training returns, whatever the backbone, and the parameters with which it gives the same model again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from mbd.features.contract import FeatureSet
from mbd.formats.model import DataRecord, ModelRecord
from mbd.params import Params
from mbd.params.learning import ModelSettings, TrainingSettings
from mbd.registry import BACKBONES
from mbd.tensors import Array

HISTORY = "history.csv"
"""in a model folder: how the training went, a line for each epoch or module"""


def training_is_recorded(record: ModelRecord) -> bool:
    """Whether the record holds all settings that the bytes of the model depend on."""
    return BACKBONES.get(record.backbone).recorded(record.spec).complete


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


def data_record(feature_set: FeatureSet) -> DataRecord:
    """Return the name of the data and the digests of the files that a model is made from (not those of test)."""
    files = {name: d for name, d in feature_set.digests().items() if PurePosixPath(name).parts[1] in _SPLITS}
    return DataRecord(name=feature_set.manifest.name, files=files)

"""What training returns, whatever the backbone, and the parameters with which it gives the same model again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeVar

from mbd.features.contract import FeatureSet
from mbd.formats.model import DataRecord, JointSpec, LatticeSpec, ModelRecord, ModuleSpec
from mbd.params import Params
from mbd.params.learning import LatticeSettings, ModelSettings, TrainingSettings
from mbd.registry import BACKBONES
from mbd.tensors import Array

T = TypeVar("T")


def training_is_recorded(record: ModelRecord) -> bool:
    """Whether the record holds all settings that the bytes of the model depend on."""
    closed_form = record.backbone == "lattice" and not record.spec.get("member")
    return closed_form or bool(record.spec.get("training"))


def recorded_params(record: ModelRecord, params: Params) -> Params:
    """Return the parameters with architecture, settings of the training (where recorded) and seed of a model."""
    known: dict[str, object] = {}
    if record.backbone == "lattice":
        lattice = LatticeSpec.model_validate(record.spec)
        known = lattice.training
        own = {name: getattr(lattice, name) for name in LatticeSettings.model_fields}
        model = ModelSettings(backbone=record.backbone, lattice=LatticeSettings.model_validate(own))
    elif BACKBONES.is_path(record.backbone):
        module = ModuleSpec.model_validate(record.spec)
        known = module.training
        branches = {m: names for m, names in module.branches.items() if m in module.shapes}
        model = ModelSettings(backbone=record.backbone, options=module.options, branches=branches)
    else:
        joint = JointSpec.model_validate(record.spec)
        known = joint.training
        model = ModelSettings(backbone=record.backbone, joint=joint.settings)
    training = {**params.training.model_dump(), **known, "seed": int(record.seed)}
    return params.model_copy(update={"model": model, "training": TrainingSettings.model_validate(training)})


_SPLITS = ("train", "valid", "calibration")


@dataclass(frozen=True)
class Part:
    """The `number`-th (from 1) of `count` parts of a training, which several machines do side by side."""

    number: int
    count: int

    def of(self, work: Sequence[T]) -> list[T]:
        """Return what of the work falls to this part; every item falls to one."""
        return list(work[self.number - 1 :: self.count])


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

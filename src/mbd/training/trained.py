"""What training returns, whatever the backbone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from mbd.features.contract import FeatureSet
from mbd.formats.model import DataRecord, ModelRecord
from mbd.tensors import Array

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

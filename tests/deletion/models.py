"""A small joint model, the data it was made from, and what deletion methods take."""

from pathlib import Path

import numpy as np
import torch

from mbd.deletion.calibration import JointCalibration
from mbd.deletion.methods import ModelBefore
from mbd.model.checkpoint import load_model
from mbd.model.compatible import open_for
from mbd.model.joint import from_tensors
from mbd.params import load_params
from mbd.steps import features as features_step
from tests.evaluation.models import tiny_model
from tests.features.build import npz_arrays, small_collection, small_rows, synthetic_set, write_npz


def home_with_models(folder: Path, *settings: str, features: tuple[str, ...] = ()) -> Path:
    """Write `data`, a `model` of it and `silent`, the one that never saw audio."""
    synthetic_set(folder / "data", *features)
    tiny_model(folder / "data", folder / "model", *settings)
    tiny_model(folder / "data", folder / "silent", *settings, without=("audio",))
    return folder


def patchy_home(folder: Path, absent: dict[str, list[int]]) -> Path:
    """Write `data` with 12 calibration rows, of which some lack modalities, and a `model` of it."""
    rows = small_rows("calibration", 12)
    arrays = npz_arrays(small_collection()) | {"calibration_ids": rows.ids, "calibration_labels": rows.labels}
    arrays |= {f"calibration_{m}": x for m, x in rows.features.items()}
    for modality, positions in absent.items():
        bits = ~np.isin(np.arange(12), positions)
        arrays[f"calibration_{modality}_available"] = bits
        arrays[f"calibration_{modality}"][~bits] = 0
    file = write_npz(folder / "d.npz", arrays)
    features_step.run(load_params(None, ["features.source.kind=npz", f"features.source.path={file}"]), folder / "data")
    tiny_model(folder / "data", folder / "model")
    return folder


def model_before(model_workspace: Path, model: str = "model") -> ModelBefore:
    """Return a model as deletion methods take it."""
    record, tensors = load_model(model_workspace / model)
    return ModelBefore(record, tensors, open_for(record, model_workspace / "data"))


def calibration(of: ModelBefore, dtype: torch.dtype = torch.float64) -> JointCalibration:
    """Return the calibration rows in the shape of a model."""
    network = from_tensors(of.record, of.tensors).network.to(dtype)
    return JointCalibration(of.data.split("calibration"), network, of.record.task)

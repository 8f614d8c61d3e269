"""A small joint model, the data it was made from, and what deletion methods take."""

from pathlib import Path

import torch

from mbd.deletion.calibration import Calibration
from mbd.deletion.outcome import Original
from mbd.model.checkpoint import load_model
from mbd.model.compatible import open_for
from mbd.model.joint import from_tensors
from tests.evaluation.models import tiny_model
from tests.features.build import synthetic_set


def home_with_models(folder: Path, *settings: str, features: tuple[str, ...] = ()) -> Path:
    """Write `data`, a `model` of it and `silent`, the one that never saw audio."""
    synthetic_set(folder / "data", *features)
    tiny_model(folder / "data", folder / "model", *settings)
    tiny_model(folder / "data", folder / "silent", *settings, without=("audio",))
    return folder


def original(home: Path, model: str = "model") -> Original:
    """Return a model as deletion methods take it."""
    record, tensors = load_model(home / model)
    return Original(record, tensors, open_for(record, home / "data"))


def calibration(of: Original, dtype: torch.dtype = torch.float64) -> Calibration:
    """Return the calibration rows in the shape of a model."""
    network = from_tensors(of.record, of.tensors).network.to(dtype)
    return Calibration(of.data.split("calibration"), network, of.record.task)

"""A trained joint model with the calibration rows of its data, and the names of its parts as the paper has them."""

from collections.abc import Collection
from pathlib import Path

from mbd.deletion.calibration import JointCalibration
from mbd.model.checkpoint import load_model
from mbd.model.compatible import open_for

_OF_A_MODALITY = {
    "generator": "G_{m}",
    "property": "P^{m}",
    "decomposition": "DE_{m}",
    "recomposition": "recomposition of {m}",
    "back_translation": "B_{m}",
    "projection": "projection of {m}",
    "beside": "linear map with {m}",
}
_SHARED = {"fusion": "fusion F", "head": "head C", "linear": "linear map"}


def calibrated(model: Path, features: Path) -> JointCalibration:
    """Open a joint model and its calibration rows."""
    record, tensors = load_model(model)
    return JointCalibration.of(record, tensors, open_for(record, features).split("calibration"))


def part_of(tensor: str, modalities: Collection[str]) -> str:
    """Return the part of the model that a parameter is in."""
    for modality in sorted(modalities, key=len, reverse=True):
        prefix = f"modality.{modality}."
        if tensor.startswith(prefix):
            piece = tensor.removeprefix(prefix).partition(".")[0]
            return _OF_A_MODALITY[piece].format(m=modality)
    return _SHARED[tensor.partition(".")[0]]

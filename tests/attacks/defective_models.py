"""Deleted models that lie: in their files, about their noise, or about what they are made of."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from mbd.files import read_json, to_json, write_file
from mbd.formats.model import TensorRecord
from mbd.model.checkpoint import load_model, save_model


def smuggled(model_workspace: Path, out: Path) -> Path:
    """Write the deleted model with audio's decomposition, rows in another order, in place of a retained tensor."""
    _, before = load_model(model_workspace / "model")
    record, tensors = load_model(model_workspace / "deleted")
    secret = before["modality.audio.back_translation.out.weight"]
    hidden = {"modality.text.back_translation.out.weight": np.ascontiguousarray(secret[::-1])}
    assert hidden.items() and secret.shape == tensors["modality.text.back_translation.out.weight"].shape
    shutil.copytree(model_workspace / "deleted", out)
    save_model(out, record, tensors | hidden)
    return out


def forged(model_workspace: Path, out: Path) -> Path:
    """Write the whole model with a record that names audio nowhere in its provenance."""
    record, tensors = load_model(model_workspace / "model")
    entries = {name: TensorRecord(**{**e.model_dump(), "columns": ()}) for name, e in record.tensors.items()}
    entries = {
        name: e.model_copy(update={"belongs_to": None}) if e.belongs_to == "audio" else e for name, e in entries.items()
    }
    out.mkdir(parents=True)
    save_model(out, record.model_copy(update={"tensors": entries, "revoked": ("audio",)}), tensors)
    return out


def rewritten(source: Path, out: Path, *keys: str, value: object) -> Path:
    """Copy a deleted model, with another value at one place of its deletion.json."""
    shutil.copytree(source, out)
    record: dict[str, Any] = read_json(out / "deletion.json")
    place = record
    for key in keys[:-1]:
        place = place[key]
    assert keys[-1] in place
    place[keys[-1]] = value
    write_file(out / "deletion.json", to_json(record))
    return out


def retouched(model_workspace: Path, out: Path) -> Path:
    """Copy the deleted model and change one of its weights afterwards."""
    shutil.copytree(model_workspace / "deleted", out)
    record, tensors = load_model(model_workspace / "deleted")
    save_model(out, record, tensors | {"head.bias": tensors["head.bias"] + 1e-3})
    return out

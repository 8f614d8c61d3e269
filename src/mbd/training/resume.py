"""A killed training continues from its last snapshot, and ends with the bytes of an undisturbed one.

A snapshot is one safetensors file, written whole or not at all: the weights, the momentum, the best weights so far and,
as JSON, the losses of the epochs done. All draws depend on the epoch alone, so there is no random state to keep.
A snapshot is used only by a run with the same parameters, data, number of processes and versions: they make its key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from mbd.errors import DataError
from mbd.files import write_file
from mbd.tensors import Array, open_tensors

_STATE = "state"


@dataclass
class TrainingState:
    """How far a training has come."""

    weights: dict[str, Array] = field(default_factory=dict)
    momentum: dict[str, Array] = field(default_factory=dict)
    best: dict[str, Array] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


class Snapshots:
    """The snapshot of one training, in one file."""

    def __init__(self, folder: Path, key: str) -> None:
        self._file, self._key = folder / "snapshot.safetensors", key

    def save(self, training_state: TrainingState) -> None:
        """Replace the snapshot by `state`."""
        state = json.dumps({"key": self._key, "history": training_state.history})
        tensors = {_STATE: np.frombuffer(state.encode(), np.uint8)}
        for kind, group in _groups(training_state).items():
            tensors |= {f"{kind}/{name}": np.ascontiguousarray(tensor) for name, tensor in group.items()}
        write_file(self._file, save(tensors))

    def load(self) -> TrainingState | None:
        """Return the snapshot of this training, or None if there is none."""
        if not self._file.is_file():
            return None
        try:
            tensors = {name: np.array(tensor) for name, tensor in open_tensors(self._file).items()}
            state = json.loads(tensors.pop(_STATE).tobytes())
        except (DataError, KeyError, ValueError):
            return None
        if state["key"] != self._key:
            return None
        training_state = TrainingState(history=state["history"])
        groups = _groups(training_state)
        for path, tensor in tensors.items():
            kind, _, name = path.partition("/")
            groups[kind][name] = tensor
        return training_state


def _groups(training_state: TrainingState) -> Mapping[str, dict[str, Array]]:
    return {"weights": training_state.weights, "momentum": training_state.momentum, "best": training_state.best}

"""Prediction with any model, and the description of its backbone.

`load(folder).predict(features, available)` takes any subset of the model's modalities, row by row. A modality that
was revoked, or that the model never had, is refused, not ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel

from mbd.errors import DataError, UsageError
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import ModelRecord, TensorRecord
from mbd.model.checkpoint import load_model
from mbd.model.compatible import refuse_foreign
from mbd.registry import BACKBONES, lazy
from mbd.tensors import Array

if TYPE_CHECKING:
    from mbd.training.trained import Trained


class LoadedBackbone(Protocol):
    """A backbone with its weights.

    It may also offer `activations(features, available)`, a mapping of n × width matrices by place in the model: what
    white-box attacks see. Without it they see the outputs alone.
    """

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        """Return scores (n), or class probabilities (n × classes), for rows whose every input is given.

        `features` has every modality of the model, with zeros where `available` says that it is missing.
        """


@dataclass(frozen=True)
class Backbone:
    """A kind of model: how it is trained and loaded, and how modalities can be deleted from it."""

    train: "Callable[..., Trained]"
    """`train(feature_set, params, *, work, progress)`: trains a model; `work` is a folder for snapshots"""
    load: Callable[[ModelRecord, Mapping[str, Array]], LoadedBackbone]
    """makes a model of its record and its tensors"""
    methods: tuple[str, ...] = ()
    """deletion methods that work on it, besides those that name it themselves"""
    settings: type[BaseModel] | None = None
    """of `model.options`; built-in backbones have sections of their own"""


@dataclass(frozen=True)
class Model:
    """A loaded model."""

    record: ModelRecord
    backbone: LoadedBackbone

    @property
    def modalities(self) -> dict[str, int]:
        """Name and dimension of every modality that the model takes."""
        return self.record.inputs

    @property
    def guarantee(self) -> Guarantee:
        """What is promised of the deleted modalities."""
        return self.record.guarantee

    @property
    def provenance(self) -> dict[str, TensorRecord]:
        """What the training of each tensor could see."""
        return dict(self.record.tensors)

    def predict(
        self,
        features: Mapping[str, ArrayLike],
        available: Mapping[str, ArrayLike] | None = None,
        *,
        batch_size: int = 4096,
    ) -> Array:
        """Return a score for each row (regression) or the probability of each class (classification).

        Args:
            features: n × d matrices by modality: anything array-like (lists, numpy, torch, pandas). A modality that is
                left out is missing in all rows.
            available: for each modality, which rows have it (default: all).
            batch_size: how many rows are computed at once.

        Returns:
            n scores, or n × classes probabilities.

        Raises:
            DataError: a matrix has another shape, or a value that counts is NaN or infinite.
        """
        refuse_foreign(self.record, features)
        matrices = {name: _matrix(name, values) for name, values in features.items()}
        n = _row_count(matrices)
        complete, there = {}, {}
        for name, dim in self.record.modalities.items():
            bits = np.broadcast_to(np.asarray((available or {}).get(name, name in features), bool), (n,))
            matrix = matrices.get(name)
            if matrix is None:
                bits, matrix = np.zeros(n, bool), np.broadcast_to(np.float32(0), (n, dim))
            elif matrix.ndim != 2 or matrix.shape[1] != dim:
                raise DataError(f"{name} must be a matrix with {dim} columns", key=name, value=matrix.shape)
            else:
                _refuse_not_finite(name, matrix, bits)
            complete[name], there[name] = matrix, bits
        nothing = ~np.any(list(there.values()), axis=0)
        if nothing.any():
            raise DataError(
                f"{int(nothing.sum())} rows have no modality that the model takes",
                value=f"first: row {int(nothing.argmax())}",
                hint=f"give at least one of {', '.join(self.record.inputs)} for every row",
            )
        parts = []
        for start in range(0, n, batch_size):
            rows = slice(start, start + batch_size)
            present = {m: bits[rows] for m, bits in there.items()}
            inputs = {m: np.where(present[m][:, None], x[rows], np.float32(0)) for m, x in complete.items()}
            parts.append(self.backbone.predict(inputs, present))
        return np.concatenate(parts)


def load(folder: Path | str, *, verify: bool = True) -> Model:
    """Load a model folder."""
    record, tensors = load_model(Path(folder), verify=verify)
    return Model(record, BACKBONES.get(record.backbone).load(record, tensors))


def _matrix(name: str, values: ArrayLike) -> Array:
    """Return values as an array of floats; arrays of floats stay as they are."""
    try:
        detached = values.detach().cpu() if hasattr(values, "detach") else values  # a torch tensor
        matrix = np.asarray(detached)
        return matrix if matrix.dtype.kind == "f" else matrix.astype(np.float32)
    except (TypeError, ValueError) as error:
        hint = "give a matrix: a list of equally long rows, or a numpy, torch or pandas one"
        raise DataError(f"{name} is not a matrix of numbers", key=name, hint=hint) from error


def _refuse_not_finite(name: str, matrix: Array, available: Array) -> None:
    if np.isfinite(matrix.sum(dtype=np.float64)):  # fast: a sum is finite only if all of it is
        return
    wrong = ~np.isfinite(matrix) & available[:, None]
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise DataError(
            f"{int(wrong.sum())} values of {name} are NaN or infinite",
            key=name,
            value=f"{matrix[row, column]} in row {row}, column {column}",
            hint=f"repair them, or mark these rows as missing: available={{{name!r}: …}}",
        )


def _row_count(features: Mapping[str, Array]) -> int:
    counts = {name: len(matrix) for name, matrix in features.items()}
    if not counts:
        raise UsageError("no modality was given", hint="give at least one")
    if len(set(counts.values())) > 1:
        raise DataError("the modalities have different numbers of rows", value=counts)
    return next(iter(counts.values()))


JOINT = Backbone(
    train=lazy("mbd.training.joint:train_joint", "training", "train"),
    load=lazy("mbd.model.joint:from_tensors", "a joint model", "train"),
)
LATTICE = Backbone(
    train=lazy("mbd.training.lattice:train_lattice", "training", "train"),
    load=lazy("mbd.model.lattice:from_tensors", "a lattice model", "train"),
)

"""Prediction with any model, and the description of its backbone.

`load(folder).predict(features, available)` takes any subset of the model's modalities, row by row. A modality that
was revoked, or that the model never had, is refused, not ignored.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel

from mbd.errors import DataError, UsageError
from mbd.formats.features import Shape, lengths_of
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import JointSpec, LatticeSpec, ModelRecord, ModuleSpec, RecordedTraining, TensorRecord
from mbd.model.checkpoint import load_model
from mbd.model.compatible import refuse_foreign
from mbd.registry import BACKBONES, lazy
from mbd.tensors import Array

if TYPE_CHECKING:
    from mbd.deletion.calibration import Calibration
    from mbd.deletion.cut import Cut
    from mbd.model.attachment import Attachment
    from mbd.training.trained import Trained


class LoadedBackbone(Protocol):
    """A backbone with its weights; it may also be one of the kinds below."""

    def predict(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Array:
        """Return scores (n), or class probabilities (n × classes), for rows whose every input is given.

        `features` has every modality of the model, with zeros where `available` says that it is missing.
        """


@runtime_checkable
class OffersActivations(Protocol):
    """A backbone that white-box attacks look into; of any other they see the outputs alone."""

    def activations(self, features: Mapping[str, Array], available: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return an n × width matrix for each place in the model."""


@runtime_checkable
class OffersReconstructions(Protocol):
    """A backbone that reconstructs a modality from the others."""

    def reconstructions(
        self, features: Mapping[str, Array], available: Mapping[str, Array], modality: str
    ) -> dict[str, Array]:
        """Return reconstructions of a modality that is not available, in the units of the features, by their origin."""


@runtime_checkable
class AnswersSome(Protocol):
    """A backbone that has no prediction for some sets of modalities."""

    def answered(self, available: Mapping[str, Array]) -> Array:
        """Return which rows get a prediction."""


@runtime_checkable
class TakesWeights(Protocol):
    """A backbone whose weights can be exchanged, which is faster than loading the model again."""

    def put(self, tensors: Mapping[str, Array]) -> None:
        """Replace the weights by others of the same names and shapes."""


_FRESH_START = lazy("mbd.deletion.certified:fresh_start")
_BY_RECORD = lazy("mbd.deletion.cut:cut_arrays")
_TRANSPLANT = lazy("mbd.model.transplant:transplant_by_record")


@dataclass(frozen=True)
class Backbone:
    """A kind of model: how it is trained and loaded, and how modalities can be deleted from it."""

    train: "Callable[..., Trained]"
    """`train(feature_set, params, *, work, progress)`: trains a model; `work` is a folder for snapshots"""
    load: Callable[[ModelRecord, Mapping[str, Array]], LoadedBackbone]
    """makes a model of its record and its tensors"""
    cut: "Callable[..., Cut] | None" = None
    """`cut(record, tensors, gone, rows)`: the model without all that exists for the modalities `gone` alone, as
    :func:`mbd.deletion.cut.cut_model` describes it; None: it cannot be cut"""
    calibration: "Callable[..., Calibration] | None" = None
    """`calibration(record, tensors, split)`: what Algorithm 1 measures on; None: it measures nothing"""
    fresh_start: Callable[..., dict[str, Array]] = _FRESH_START
    """`fresh_start(record, noised, sigma, seed)`: noised tensors as a start of fine-tuning"""
    counterparts: Callable[..., dict[str, Array]] = _BY_RECORD
    """`counterparts(record, tensors, gone)`: what of the tensors a model without `gone` has too; distances between
    models are over that"""
    transplant: Callable[..., dict[str, Array]] = _TRANSPLANT
    """`transplant((record, tensors), (record after, tensors after), modality)`: the tensors of the model after a
    deletion with those that the modality had before"""
    separable: bool = False
    """whether the tensors that have not seen a modality make a model; otherwise `exact` trains one without it"""
    settings: type[BaseModel] | None = None
    """of `model.options`; built-in backbones have sections of their own"""
    finetune: "Callable[..., tuple[dict[str, Array], list[dict[str, float]]]] | None" = None
    """`finetune(record, tensors, feature_set, params, *, epochs)`: trains further, `epochs` (a number, or `auto`)"""
    finetune_epochs: int | Literal["auto"] = "auto"
    """how long `finetune` trains where the parameters do not say"""
    spec_without: Callable[[dict[str, Any], Collection[str]], dict[str, Any]] = lambda spec, _: spec
    """`spec_without(spec, gone)`: what `spec` in the record is when training never had the modalities `gone`"""
    recorded: Callable[[dict[str, Any]], RecordedTraining] = RecordedTraining.of_plugin
    """`recorded(spec)`: how a model with this `spec` in its record was trained"""
    retrain: "Callable[..., tuple[dict[str, Array], dict[str, TensorRecord]]] | None" = None
    """`retrain(modality, feature_set, record, tensors, params)`: trains again, on other recordings of the modality, the
    tensors that have seen it; None: all of the model is trained again"""
    open_inputs: "Callable[[ModelRecord, Mapping[str, Array], Mapping[str, Shape]], LoadedBackbone] | None" = None
    """`open_inputs(record, tensors, shapes)`: loads a model with every input of `shapes` that its weights can take,
    whatever the record says; None: the record says it all"""
    attach: "Callable[..., Attachment | None] | None" = None
    """`attach(record, tensors, modality, shapes, sample)`: builds a model that takes `modality` again, scaled as in
    `sample`, with fresh weights where it has none (:mod:`mbd.model.attachment`)"""
    own_values: "Callable[..., dict[str, Array]] | None" = None
    """`own_values(record, tensors, gone, *, proposed)`: by tensor, the numbers that exist for the modalities `gone`
    alone in a model that can still be fed them; None: what the record says of each tensor is all"""


@dataclass(frozen=True, repr=False)
class Model:
    """A loaded model."""

    record: ModelRecord
    backbone: LoadedBackbone

    def __repr__(self) -> str:
        """Return what it is and takes, and what is promised of it, in two lines."""
        takes = ", ".join(f"{name} {size}" for name, size in self.modalities.items())
        gone = f"{', '.join(self.record.revoked)}; {self.guarantee.kind}" if self.record.revoked else "nothing"
        return f"Model({self.record.backbone}, {self.record.task}: {takes})\n  deleted: {gone}"

    @property
    def modalities(self) -> dict[str, int]:
        """Name and dimension (numbers at each position) of every modality that the model takes."""
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
            features: n × d matrices by modality: anything array-like (lists, numpy, torch, pandas); of a sequence
                n × T × d and, as NAME_lengths, n true lengths (default: T). A modality that is left out is missing in
                all rows.
            available: for each modality, which rows have it (default: all).
            batch_size: how many rows are computed at once.

        Returns:
            n scores, or n × classes probabilities.

        Raises:
            DataError: an array has another shape, or a value that counts is NaN or infinite.
        """
        shapes = self.record.shapes
        if not isinstance(features, Mapping) or not isinstance(available or {}, Mapping):
            example = ", ".join(f'"{name}": rows × {size}' for name, size in self.modalities.items())
            raise DataError(
                "predict takes arrays by modality",
                value=type(features if not isinstance(features, Mapping) else available).__name__,
                hint=f"model.predict({{{example}}}), or some of them",
            )
        lengths = {lengths_of(m): m for m, shape in shapes.items() if shape.has_lengths}
        refuse_foreign(self.record, [name for name in features if name not in lengths])
        arrays = {name: _array(name, values) for name, values in features.items()}
        n = _row_count(arrays)
        complete, there = {}, {}
        for name, shape in shapes.items():
            bits = np.broadcast_to(np.asarray((available or {}).get(name, name in features), bool), (n,))
            array = arrays.get(name)
            if array is None:
                bits, array = np.zeros(n, bool), np.broadcast_to(np.float32(0), (n, *shape.size))
            else:
                array = _of_shape(name, array, shape)
                _refuse_not_finite(name, array, bits)
            complete[name], there[name] = array, bits
        counted = {name: _of_lengths(name, arrays[name], shapes[m]) for name, m in lengths.items() if name in arrays}
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
            inputs = {m: zero_where_absent(x[rows], present[m]) for m, x in complete.items()}
            parts.append(self.backbone.predict(inputs | {m: x[rows] for m, x in counted.items()}, present))
        return np.concatenate(parts)


def load(folder: Path | str, *, verify: bool = True) -> Model:
    """Load a model folder."""
    record, tensors = load_model(Path(folder), verify=verify)
    return Model(record, BACKBONES.get(record.backbone).load(record, tensors))


def zero_where_absent(array: Array, available: Array) -> Array:
    """Return an array with zeros in the rows that are not available."""
    if available.all():
        return array
    return np.where(available.reshape(-1, *[1] * (array.ndim - 1)), array, array.dtype.type(0))


def _array(name: str, values: ArrayLike) -> Array:
    """Return values as an array of numbers; one of whole numbers or float16 becomes what the model takes later."""
    try:
        detached = values.detach().cpu() if hasattr(values, "detach") else values  # a torch tensor
        array = np.asarray(detached)
        return array if array.dtype.kind in "fiu" else array.astype(np.float32)
    except (TypeError, ValueError) as error:
        hint = "give a matrix: a list of equally long rows, or a numpy, torch or pandas one"
        raise DataError(f"{name} is not a matrix of numbers", key=name, hint=hint) from error


def _of_shape(name: str, array: Array, shape: Shape) -> Array:
    """Return an array with rows of a shape, as floats or token ids; refuse any other."""
    if array.shape[1:] != shape.size:
        wanted = f"a matrix with {shape.width} columns" if shape.kind == "vector" else f"a {shape} for each row"
        raise DataError(f"{name} must be {wanted}", key=name, value=array.shape)
    if shape.kind != "tokens":
        small = array.dtype == np.uint8 and shape.kind != "vector"
        return array if array.dtype.kind == "f" or small else array.astype(np.float32)
    least, most = array.min(initial=0), array.max(initial=0)
    if least < 0 or most >= (shape.vocabulary or 0):
        problem = f"{name} must be token ids from 0 to {(shape.vocabulary or 0) - 1}"
        raise DataError(problem, key=name, value=most if least >= 0 else least, hint="use the tokeniser of training")
    return array.astype(np.int64)


def _of_lengths(name: str, lengths: Array, shape: Shape) -> Array:
    if lengths.ndim != 1 or not ((lengths >= 1) & (lengths <= shape.size[0])).all():
        raise DataError(f"{name} must be one number from 1 to {shape.size[0]} for each row", key=name)
    return lengths.astype(np.int64)


def _refuse_not_finite(name: str, array: Array, available: Array) -> None:
    flat = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        # A sum of squares is finite only if all of it is; one that overflows is looked at value by value.
        if array.dtype.kind != "f" or np.isfinite(flat @ flat):
            return
    wrong = ~np.isfinite(array) & available.reshape(-1, *[1] * (array.ndim - 1))
    if wrong.any():
        row, *place = np.argwhere(wrong)[0].tolist()
        where = "column" if len(place) == 1 else "position"
        raise DataError(
            f"{int(wrong.sum())} values of {name} are NaN or infinite",
            key=name,
            value=f"{array[row, *place]} in row {row}, {where} {', '.join(map(str, place))}",
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
    train=lazy("mbd.training.joint:train_joint"),
    load=lazy("mbd.model.joint:from_tensors"),
    cut=lazy("mbd.deletion.cut:cut_by_record"),
    calibration=lazy("mbd.deletion.calibration:JointCalibration.of"),
    finetune=lazy("mbd.training.joint:finetune"),
    finetune_epochs=5,  # by folds of the train split: python -m studies.finetuning
    recorded=lambda spec: JointSpec.model_validate(spec).recorded(),
    attach=lazy("mbd.model.joint:attach_modality"),
)
LATTICE = Backbone(
    train=lazy("mbd.training.lattice:train_lattice"),
    load=lazy("mbd.model.lattice:from_tensors"),
    separable=True,
    spec_without=lambda spec, gone: LatticeSpec.model_validate(spec).without(gone).to_plain(),
    recorded=lambda spec: LatticeSpec.model_validate(spec).recorded(),
    retrain=lazy("mbd.training.lattice:retrain"),
)
MODULE = Backbone(
    train=lazy("mbd.training.module:train_module"),
    load=lazy("mbd.model.module:from_tensors"),
    cut=lazy("mbd.deletion.module:cut_module"),
    calibration=lazy("mbd.deletion.calibration:ModuleCalibration.of"),
    fresh_start=lazy("mbd.deletion.module:fresh_start"),
    counterparts=lazy("mbd.deletion.module:counterparts"),
    transplant=lazy("mbd.model.transplant:transplant_in_module"),
    finetune=lazy("mbd.training.module:finetune"),
    recorded=lambda spec: ModuleSpec.model_validate(spec).recorded(),
    open_inputs=lazy("mbd.model.module:open_inputs"),
    attach=lazy("mbd.model.module:attach_modality"),
    own_values=lazy("mbd.model.module:own_values"),
)
"""any PyTorch module, by the import path of its factory"""

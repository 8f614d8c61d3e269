"""The models that are served: what each takes and returns, and for each name one state, replaced as a whole.

A reader takes the state once and works with it; a swap is one assignment. So no request sees a part of two releases.

Every modality is an optional input; a request gives at least one. Beside a sequence or token ids, `NAME_lengths` says
how long each row is (default: all of it). Values (NaN, token ids, lengths) are checked by `Model.predict`.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mbd.formats.features import Shape, lengths_of
from mbd.model.predictor import AnswersSome, Model
from mbd.serving.inference.protocol import DATATYPE_OF, InferenceError, shown
from mbd.tensors import Array

ROWS = -1
"""in a shape: as many as the request has"""


@dataclass(frozen=True)
class InputSpec:
    """One input."""

    modality: str
    size: tuple[int, ...]
    """shape of one row"""
    datatypes: tuple[str, ...]
    """accepted ones; the first is the model's own"""
    parameters: Mapping[str, Any]

    def to_plain(self, name: str) -> dict[str, Any]:
        """Return it as metadata."""
        tensor = {"name": name, "datatype": self.datatypes[0], "shape": [ROWS, *self.size]}
        return tensor | {"parameters": {"optional": True, "modality": self.modality, **self.parameters}}


class Signature:
    """Inputs and outputs of a model."""

    def __init__(self, model: Model) -> None:
        record = model.record
        self.modalities = frozenset(record.inputs)
        self.inputs = {
            name: spec for m, shape in record.shapes.items() if m in record.inputs for name, spec in _specs(m, shape)
        }
        self._model, self._classes = model, record.classes
        self._answers = lru_cache(maxsize=1024)(self._has_answer)

    @property
    def output(self) -> str:
        """Name of the output."""
        return "probabilities" if self._classes else "prediction"

    def outputs_to_plain(self) -> list[dict[str, Any]]:
        """Return the outputs as metadata."""
        shape = [ROWS, len(self._classes)] if self._classes else [ROWS]
        tensor: dict[str, Any] = {"name": self.output, "datatype": "FP32", "shape": shape}
        return [tensor | ({"parameters": {"classes": list(self._classes)}} if self._classes else {})]

    def check(self, inputs: Mapping[str, Array]) -> int:
        """Return the number of rows of a request.

        Raises:
            InferenceError: An input is unknown or has another shape or datatype, or the model has no answer for this
                set of modalities.

        """
        for name, array in inputs.items():
            self._check_input(name, array)
        given = self.modalities.intersection(inputs)
        if missing := next((m for m in (self.inputs[name].modality for name in inputs) if m not in given), None):
            raise InferenceError("invalid_input", f"there are lengths of {missing}, and no {missing}", key=missing)
        rows = {name: len(array) for name, array in inputs.items()}
        if len(set(rows.values())) > 1:
            raise InferenceError("invalid_input", "the inputs have different numbers of rows", value=rows)
        count = next(iter(rows.values()))
        if not count:
            raise InferenceError("invalid_input", "the request has no rows")
        if not self._answers(frozenset(given)):
            problem = f"the model has no prediction from {', '.join(sorted(given))} alone"
            raise InferenceError("invalid_input", problem, hint="give more modalities")
        return count

    def _has_answer(self, given: frozenset[str]) -> bool:
        """Whether the model has a prediction for rows with exactly these modalities."""
        backbone = self._model.backbone
        if not isinstance(backbone, AnswersSome):
            return True
        return bool(backbone.answered({m: np.array([m in given]) for m in self._model.record.modalities})[0])

    def _check_input(self, name: str, array: Array) -> None:
        spec = self.inputs.get(name)
        if spec is None:
            hint = f"it takes {', '.join(self.inputs)}"
            raise InferenceError("invalid_input", f"the model has no input {shown(name)}", hint=hint)
        datatype = DATATYPE_OF[array.dtype]
        if datatype not in spec.datatypes:
            problem = f"{name} must be {' or '.join(spec.datatypes)}, not {datatype}"
            raise InferenceError("invalid_input", problem, key=name)
        if array.shape[1:] != spec.size:
            problem = f"{name} must have the shape {[ROWS, *spec.size]}, one entry of {list(spec.size)} for each row"
            raise InferenceError("invalid_input", problem, key=name, value=list(array.shape))


def _specs(modality: str, shape: Shape) -> list[tuple[str, InputSpec]]:
    """Return the inputs of one modality: itself, and its lengths where it has some."""
    more = {"kind": shape.kind} | ({"vocabulary": shape.vocabulary} if shape.vocabulary else {})
    if shape.kind == "tokens":
        datatypes: tuple[str, ...] = ("INT64",)
    else:
        datatypes = ("FP32",) if shape.kind == "vector" else ("FP32", "UINT8")
    specs = [(modality, InputSpec(modality, shape.size, datatypes, more))]
    if shape.has_lengths:
        specs.append((lengths_of(modality), InputSpec(modality, (), ("INT64",), {"kind": "lengths"})))
    return specs


_LENGTHS = "_lengths"


@dataclass(frozen=True)
class Release:
    """A release of a model name."""

    name: str
    statement: str
    """SHA-256 of the signed statement that released it: its version"""
    issued: datetime


@dataclass(frozen=True)
class Serving:
    """A release that answers."""

    release: Release
    model: Model
    signature: Signature
    revoked: Mapping[str, str] = field(default_factory=dict)
    """modalities that are revoked for the name, each with the certificate that says so"""
    folder: Path | None = None
    """where its files are"""

    def require(self, version: str | None) -> None:
        """Raise an InferenceError if another version was asked for."""
        own = self.release.statement
        if version not in (None, own):
            raise InferenceError("unknown_model", "this version is not served", value=shown(version), hint=own)

    def check(self, inputs: Mapping[str, Array]) -> int:
        """Return the number of rows of a request; an InferenceError if it is not one for this release."""
        for name in inputs:
            spec = self.signature.inputs.get(name)
            unknown = name if name in self.revoked else name.removesuffix(_LENGTHS)
            modality = spec.modality if spec else unknown
            if certificate := self.revoked.get(modality):
                raise InferenceError(
                    "revoked_modality",
                    f"{modality} was revoked by certificate {certificate}: the model takes no {modality} input",
                    key=name,
                    hint="the certificate says since when, and what was deleted; leave this input out",
                    certificate=certificate,
                )
        return self.signature.check(inputs)


@dataclass(frozen=True)
class Unavailable:
    """No release answers."""

    reason: str


class ServedModel:
    """A model name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: Serving | Unavailable = Unavailable("no release has been loaded yet")

    def revoke(self, revoked: Mapping[str, str]) -> None:
        """Refuse these modalities from now on."""
        if isinstance(self.state, Serving) and self.state.revoked != revoked:
            self.state = replace(self.state, revoked=revoked)


class ServedModels:
    """All model names, and when the log was last read for them."""

    def __init__(self, names: Iterable[str], log_seconds: float) -> None:
        self._models = {name: ServedModel(name) for name in names}
        self.log_seconds = log_seconds
        self._read_at = time.monotonic()

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models.values())

    def __getitem__(self, name: str) -> ServedModel:
        """Return a model; an InferenceError if it is not served here."""
        if name not in self._models:
            raise InferenceError(
                "unknown_model",
                f"there is no model {shown(name)} here",
                hint=f"there are {', '.join(self._models) or 'none'}",
            )
        return self._models[name]

    def log_was_read(self) -> None:
        """Remember that the log was read now."""
        self._read_at = time.monotonic()

    @property
    def stale(self) -> str | None:
        """Why no model may answer, however it is loaded: the log was not read for too long. None: they may."""
        if time.monotonic() - self._read_at <= self.log_seconds:
            return None
        return f"the log could not be read for {self.log_seconds:g} seconds: a release may have been revoked since"

    def serving(self, name: str, version: str | None = None) -> Serving:
        """Return the release that answers for a name.

        Raises:
            InferenceError: There is no such model, no release of it is served, or another one than `version`.

        """
        state = self[name].state
        reason = state.reason if isinstance(state, Unavailable) else self.stale
        if reason or isinstance(state, Unavailable):
            raise InferenceError("unavailable", f"{name} is not served: {reason}")
        state.require(version)
        return state

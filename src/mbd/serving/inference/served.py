"""The models that are served: for each name one state, which is replaced as a whole.

A reader takes the state once and works with it; a swap is one assignment. So no request sees a part of two releases.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mbd.model.predictor import Model
from mbd.serving.inference.errors import InferenceError, shown
from mbd.serving.inference.releases import Release
from mbd.serving.inference.signature import Signature
from mbd.tensors import Array

_LENGTHS = "_lengths"


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
        self.looked = threading.Event()
        """set once the log was looked at for the first time, successfully or not"""

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
        if version not in (None, state.release.statement):
            raise InferenceError(
                "unknown_model", "this version is not served", value=shown(version), hint=state.release.statement
            )
        return state

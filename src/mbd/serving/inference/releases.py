"""Which release of a model name is current, as the log says; its files are fetched, admitted, loaded and taken out.

Nothing else of the model server reads the store. The files are fetched by the digests in the signed statement, and what
was fetched is loaded only if the guard admits it under its name. The poller looks at the log again and again:

    log cannot be verified      all models are taken out at once: a revocation may be hidden
    store cannot be reached     models stay for `log_seconds`, then no request is answered (:attr:`ServedModels.stale`)
    revoked or refuted          the model is taken out before anything else is done
    modality revoked            it is refused at once, also by the release that is still served
    new release                 loaded beside the old one and swapped in; if that fails, the old one stays as long as
                                the guard admits it
"""

import logging
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np

from mbd.background import Background
from mbd.certificate.guard import Admission, admit
from mbd.errors import MbdError, VerificationError
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.layout import object_name
from mbd.history.history import WITHDRAWN, History
from mbd.history.replay import LogReplay
from mbd.model import predictor
from mbd.model.predictor import Model
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.records import now
from mbd.serving.inference.served import Release, ServedModel, ServedModels, Serving, Signature, Unavailable
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust, read_trust


class NotAdmittedError(VerificationError):
    """The guard does not admit a model."""


@dataclass(frozen=True)
class LogState:
    """What the log says at one moment."""

    history: History
    trust: Trust
    max_age: timedelta

    def current(self, name: str) -> Release | None:
        """Return the current release of a name; None if there is none."""
        release = self.history.model(name).current
        return Release(name, release.digest, release.issued) if release else None

    def withdrawn(self, release: Release) -> str | None:
        """Return why a release must not answer any longer, not even until another one is loaded; None: it may."""
        about = [each for each in self.history.about(release.statement) if each.effect in ("revoked", "refuted")]
        return f"its certificate was {about[-1].effect}: {about[-1].reason}" if about else None

    def absence(self, name: str) -> str:
        """Return why a name has no current release."""
        releases = self.history.model(name).releases
        if not releases:
            return "the log has no release of it"
        last = releases[-1].digest
        about = [statement for statement in self.history.about(last) if statement.effect in WITHDRAWN]
        why = f"was {about[-1].effect}: {about[-1].reason}" if about else "is not in force"
        return f"its last release, {last[:16]}, {why}"

    def revoked(self, name: str) -> Mapping[str, str]:
        """Return the modalities that are revoked for a name, each with the certificate that says so."""
        model = self.history.model(name)
        return {
            modality: max(
                (each for each in model.certificates if modality in each.revoked),
                key=lambda each: (modality in each.modalities, each.index),
            ).digest
            for modality in model.revoked
        }

    def fetch(self, release: Release, folder: Path) -> None:
        """Write the files of a release to a folder, each with the digest that was signed.

        Raises:
            MbdError: A file is missing or has another digest, or the store failed.

        """
        digests = self.history.statement(release.statement).digests
        for name in (WEIGHTS, MODEL):
            self.history.store.fetch(object_name(digests[name]), folder / name, sha256=digests[name])

    def admit(self, name: str, folder: Path) -> Admission:
        """Ask the guard whether the model in a folder may be loaded under a name; NotAdmittedError: it may not."""
        ask = partial(admit, folder, self.history.store, self.trust, history=self.history, name=name)
        try:
            return ask(at=now(), max_age=self.max_age)
        except VerificationError as error:
            raise NotAdmittedError(error.problem) from error

    @property
    def key(self) -> tuple[int, Trust]:
        """The same for two states if nothing was logged between them, and the same keys are trusted."""
        return self.history.size, self.trust


class ReleaseLog:
    """Reads the log again and again; what was read before is kept."""

    def __init__(self, store: Store, trust: Path, max_age: timedelta) -> None:
        self._replay, self._trust, self._max_age = LogReplay(store, cached=True), trust, max_age

    def read(self) -> LogState:
        """Return what the log says now.

        Raises:
            VerificationError: The log cannot be trusted or not be read completely, or its checkpoint is too old.
            MbdError: The store or the trust file cannot be read.

        """
        trust = read_trust(self._trust)
        history = self._replay.read(trust).require(now(), self._max_age)
        return LogState(history, trust, self._max_age)


_STOP_SECONDS = 10.0
_ADMITTED_SECONDS = 300.0
"""after which the guard is asked again, although nothing was logged: certificates become overdue"""
_LOG = logging.getLogger(__name__)


class Poller(Background):
    """Keeps models as the log has them, in a background thread."""

    def __init__(self, log: ReleaseLog, models: ServedModels, folder: Path, seconds: float, samples: Samples) -> None:
        super().__init__("releases", _STOP_SECONDS)
        self._releases, self._models, self._folder, self._seconds = log, models, folder, seconds
        self._samples = samples
        self._admitted: dict[str, tuple[tuple[int, Trust], float]] = {}
        """for each model, the state of the log with which the guard has last admitted it, and when"""

    def _run(self) -> None:
        self._repeat(self.poll, self._seconds)

    def poll(self) -> None:
        """Look at the log once. Failures are logged, not raised."""
        try:
            state = self._releases.read()
            self._withdraw(state)
        except VerificationError as error:
            _LOG.error("the log cannot be trusted: %s", error.problem)
            for model in self._models:
                self._take_out(model, "the log in the store does not verify, or not all of it can be read")
        except Exception as error:  # the next look may succeed, whatever the reason
            _LOG.warning("the log cannot be read: %s", _text(error))
            for model in self._models if self._models.stale else ():
                self._take_out(model, self._models.stale or "")
        else:
            self._models.log_was_read()
            self._samples.set(metrics.INFERENCE_LOG, time.time())
            for model in self._models:
                self._update(model, state)

    def _withdraw(self, state: LogState) -> None:
        """Refuse modalities and take out models that were revoked, before anything that takes time."""
        for model in self._models:
            model.revoke(state.revoked(model.name))
            serving = model.state
            if isinstance(serving, Serving) and (reason := state.withdrawn(serving.release)):
                self._take_out(model, reason)

    def _update(self, model: ServedModel, state: LogState) -> None:
        """Serve the current release of a model, or the one before as long as the guard admits it."""
        current, serving = state.current(model.name), model.state
        if current is None:
            self._take_out(model, state.absence(model.name))
        elif not isinstance(serving, Serving) or serving.release != current:
            try:
                self._swap(model, self._load(current, state))
                self._admitted[model.name] = state.key, time.monotonic()
            except Exception as error:  # the old one may stay, whatever the reason
                self._samples.count(metrics.INFERENCE_LOADS_FAILED, model=model.name)
                _LOG.warning("release %s of %s is not loaded: %s", current.statement[:16], model.name, _text(error))
                # Clients learn what the guard says; other errors can name paths.
                why = error.problem if isinstance(error, NotAdmittedError) else "the server's log says why"
                self._keep(model, state, f"its current release is not loaded: {why}")
        else:
            key, since = self._admitted[model.name]
            if key != state.key or time.monotonic() - since > _ADMITTED_SECONDS:
                self._keep(model, state)

    def _keep(self, model: ServedModel, state: LogState, reason: str | None = None) -> None:
        """Let a model be served as long as the guard admits it; `reason`: why it is not another release."""
        serving = model.state
        if isinstance(serving, Unavailable) or serving.folder is None:
            self._take_out(model, reason or "no release of it is loaded")
            return
        try:
            state.admit(model.name, serving.folder)
            self._admitted[model.name] = state.key, time.monotonic()
        except NotAdmittedError as error:
            self._take_out(model, reason or error.problem)
        except Exception as error:  # the guard could not be asked, so the answer may be as before, for a time
            _LOG.warning("the guard could not be asked about %s: %s", model.name, _text(error))
            if time.monotonic() - self._admitted[model.name][1] > self._models.log_seconds:
                self._take_out(model, "the guard could not be asked about it for too long")

    def _load(self, release: Release, state: LogState) -> Serving:
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        try:
            state.fetch(release, folder)
            state.admit(release.name, folder)
            model = predictor.load(folder)
            signature = Signature(model)
            _run_once(model, signature)
        except BaseException:
            shutil.rmtree(folder)
            raise
        return Serving(release, model, signature, state.revoked(release.name), folder)

    def _swap(self, model: ServedModel, new: Serving) -> None:
        old, model.state = model.state, new
        self._samples.set(metrics.INFERENCE_READY, 1, model=model.name)
        self._samples.set(metrics.INFERENCE_RELEASE, new.release.issued.timestamp(), model=model.name)
        if isinstance(old, Serving):
            self._samples.count(metrics.INFERENCE_SWAPS, model=model.name)
            self._remove(old)
        _LOG.info("release %s of %s is served", new.release.statement[:16], model.name)

    def _take_out(self, model: ServedModel, reason: str) -> None:
        old, model.state = model.state, Unavailable(reason)
        self._samples.set(metrics.INFERENCE_READY, 0, model=model.name)
        if isinstance(old, Serving):
            _LOG.warning("%s is no longer served: %s", model.name, reason)
            self._remove(old)

    def _remove(self, old: Serving) -> None:
        if old.folder is not None:  # a batch that is being computed has the weights in memory
            shutil.rmtree(old.folder, ignore_errors=True)


def _run_once(model: Model, signature: Signature) -> None:
    """Predict for one row of zeros: a model that cannot is not served, and first requests need not wait."""
    modalities = {name: spec for name, spec in signature.inputs.items() if name in signature.modalities}
    kinds = {name: np.int64 if spec.datatypes[0] == "INT64" else np.float32 for name, spec in modalities.items()}
    inputs = {name: np.zeros((1, *spec.size), kinds[name]) for name, spec in modalities.items()}
    signature.check(inputs)
    model.predict(inputs)


def _text(error: Exception) -> str:
    return error.problem if isinstance(error, MbdError) else type(error).__name__

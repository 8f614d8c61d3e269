"""Which release of a model name is current, as the log says, and how its files are fetched and admitted.

Nothing else of the model server reads the store. The files are fetched by the digests in the signed statement, and what
was fetched is loaded only if the guard admits it under its name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from mbd.certificate.guard import Admission, admit
from mbd.errors import VerificationError
from mbd.formats.layout import object_name
from mbd.formats.statement import MODEL, WEIGHTS
from mbd.history.history import WITHDRAWN, History
from mbd.history.replay import LogReplay
from mbd.records import now
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust, read_trust


class NotAdmittedError(VerificationError):
    """The guard does not admit a model."""


@dataclass(frozen=True)
class Release:
    """A release of a model name."""

    name: str
    statement: str
    """SHA-256 of the signed statement that released it: its version"""
    issued: datetime


@dataclass(frozen=True)
class LogState:
    """What the log says at one moment."""

    history: History
    trust: Trust
    max_age: timedelta

    def current(self, name: str) -> Release | None:
        """Return the current release of a name; None if there is none."""
        found = self.history.model(name).current
        return Release(name, found.digest, found.issued) if found else None

    def withdrawn(self, release: Release) -> str | None:
        """Return why a release must not answer any longer, not even until another one is loaded; None: it may."""
        about = [one for one in self.history.about(release.statement) if one.effect in ("revoked", "refuted")]
        return f"its certificate was {about[-1].effect}: {about[-1].reason}" if about else None

    def absence(self, name: str) -> str:
        """Return why a name has no current release."""
        releases = self.history.model(name).releases
        if not releases:
            return "the log has no release of it"
        last = releases[-1].digest
        about = [one for one in self.history.about(last) if one.effect in WITHDRAWN]
        why = f"was {about[-1].effect}: {about[-1].reason}" if about else "is not in force"
        return f"its last release, {last[:16]}, {why}"

    def revoked(self, name: str) -> Mapping[str, str]:
        """Return the modalities that are revoked for a name, each with the certificate that says so."""
        model = self.history.model(name)
        standing = [one for one in model.certificates if "revoked" not in self.history.effects(one.digest)]
        found = {}
        for modality in model.revoked:
            own = [one.digest for one in standing if modality in one.modalities]
            found[modality] = (own or [one.digest for one in standing if modality in one.revoked])[-1]
        return found

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

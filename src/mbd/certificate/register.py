"""Registering and reinstating: signed, logged statements of which one makes one entry, however often it is run.

    1. the files of the model and of its references, under their digests     (not reachable without a registration)
    2. drafts/KEY in the private part of the store: the signed envelope      (KEY: digest of what it states, no time)
    3. certificates/DIGEST/certificate.json, the entry in the log, proof     (as for every statement)

A certificate is signed in a step of its own and published as often as needed. These statements are signed when they are
published, with the time in them; the draft is what a second run, or another process, finds and publishes instead of its
own. A draft is believed only if it is signed and states the same.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mbd.certificate.publish import Publisher, publish_statement
from mbd.errors import UsageError, VerificationError
from mbd.files import canonical_digest
from mbd.formats.layout import object_name
from mbd.formats.registration import Reinstatement
from mbd.formats.statement import RegistrationStatement, ReinstatementStatement, subjects_of
from mbd.history.facts import CertificateFacts, RegistrationFacts, registration_facts
from mbd.history.history import History
from mbd.history.replay import read_history
from mbd.params.operations import CertificateSettings
from mbd.records import now
from mbd.storage.store import Store, update
from mbd.trust.envelope import certificate_digest
from mbd.trust.keys import sign_statement
from mbd.verifier.reader import verify_envelope

DRAFTS = "drafts/"
_LOG = logging.getLogger(__name__)
Signed = RegistrationStatement | ReinstatementStatement


@dataclass(frozen=True)
class Registrar:
    """Who registers where: the publisher, the private part of its store, and whose keys sign."""

    publisher: Publisher
    private: Store
    settings: CertificateSettings

    def history(self) -> History:
        """Complete what a killed writer has left, and return what the log says; VerificationError if unknown."""
        self.publisher.complete()
        return read_history(self.publisher.store, self.publisher.trust).require()

    def register(self, statement: RegistrationStatement, files: dict[str, Path]) -> str:
        """Publish a registration and the `files` it names, by digest; return the SHA-256 of its envelope.

        Raises:
            VerificationError: The model takes, or was trained on, what is revoked for its name.
        """
        history = self.history()
        refuse_revoked(history, registration_facts(history.size, "", statement))
        for digest, file in sorted(files.items(), key=lambda pair: (pair[1].stat().st_size, pair[0])):
            self.publisher.store.create(object_name(digest), file)
        return self._publish(statement)

    def reinstate(
        self, model: str, modalities: Iterable[str], reason: str, person: str | None = None
    ) -> tuple[str, tuple[str, ...]]:
        """Let releases of a name take modalities again; return the statement's digest and what it overrules.

        What persons have revoked for themselves stays revoked. With `person`, the digest of the certificate of a
        person's deletion, that one alone is overruled. Run again for the same reason, it returns what was stated.

        Raises:
            UsageError: A modality is not revoked for the name, nor one of a person's.
        """
        history, wanted = self.history(), tuple(sorted(set(modalities)))
        named = [c for c in history.model(model).persons if c.digest == person]
        gone = bool(named) if person else bool(history.model(model).revoked.intersection(wanted))
        if not gone and (done := _stated(history, model, wanted, reason)):
            return done
        overruled = {c.digest for m in wanted for c in _revoking(history, model, m, named if person else None)}
        statement = ReinstatementStatement(
            subject=subjects_of({digest: digest for digest in overruled}),
            predicate=Reinstatement(model=model, modalities=wanted, reason=reason, issued=now()),
        )
        return self._publish(statement), tuple(sorted(overruled))

    def _publish(self, statement: Signed) -> str:
        envelope = self._draft(statement)
        publish_statement(self.publisher, envelope)
        return certificate_digest(envelope)

    def _draft(self, statement: Signed) -> bytes:
        """Return the envelope to publish: the one that an earlier run has left for the same statement, or a new one."""
        chosen = own = sign_statement(statement, self.settings).to_bytes()
        verify_envelope(own, None, self.publisher.trust, unpublished=True).require()

        def decide(there: bytes | None) -> bytes | None:
            nonlocal chosen
            usable = there is not None and self._states_the_same(there, statement)
            chosen = there if usable and there else own
            return None if usable else own

        update(self.private, f"{DRAFTS}{canonical_digest(_content(statement))}", decide)
        return chosen

    def _states_the_same(self, draft: bytes, statement: Signed) -> bool:
        try:
            drafted = verify_envelope(draft, None, self.publisher.trust, unpublished=True).require()
        except VerificationError as error:
            _LOG.warning("a draft in the private part of the store is ignored: %s", error)
            return False
        return isinstance(drafted, type(statement)) and _content(drafted) == _content(statement)


def refuse_revoked(history: History, release: RegistrationFacts) -> None:
    """Refuse a model that takes, or was trained on, what is revoked for its name."""
    if problem := history.model(release.model).problem(release):
        raise VerificationError(
            problem,
            key="sees",
            value=", ".join(release.sees),
            hint="`mbd train` leaves out what is revoked; `mbd models reinstate` if consent was given again",
        )


def _stated(
    history: History, name: str, modalities: tuple[str, ...], reason: str
) -> tuple[str, tuple[str, ...]] | None:
    """Return the reinstatement of these modalities for this reason that the log has, and what it overrules, if any."""
    about = [s for certificate in history.model(name).certificates for s in history.about(certificate.digest)]
    same = [s for s in about if (s.kind, s.modalities, s.reason) == ("reinstatement", modalities, reason)]
    last = max(same, key=lambda s: s.index, default=None)
    return (last.digest, tuple(sorted(s.about for s in same if s.digest == last.digest))) if last else None


def _revoking(
    history: History, name: str, modality: str, persons: list[CertificateFacts] | None
) -> list[CertificateFacts]:
    """Return the certificates by which a modality is revoked for a name, or those of `persons` in it."""
    model = history.model(name)
    of_all = [c for c in model.certificates if modality in c.revoked] if modality in model.revoked else []
    revoking = of_all if persons is None else [c for c in persons if modality in c.modalities]
    if not revoking:
        raise UsageError(
            f"{modality} is not revoked for {name}" + ("" if persons is None else " by such a person's deletion"),
            key="--modality",
            value=modality,
            hint=f"revoked: {', '.join(sorted(model.revoked)) or 'nothing'}; `mbd models show {name}`",
        )
    return revoking


def _content(statement: Any) -> dict[str, Any]:  # noqa: ANN401 -- of either kind
    """Return what a statement says, but for the time."""
    plain: dict[str, Any] = statement.to_plain()
    return {**plain, "predicate": {key: value for key, value in plain["predicate"].items() if key != "issued"}}

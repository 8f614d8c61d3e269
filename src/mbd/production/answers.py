"""Which statement of the log answers which request.

    whole modalities    a certificate by which they are revoked
    of a person         the same; a certificate that commits to this person; or the statement that nothing was held

Requests are objects that anyone with access to the private part of the store can change, and certificates name persons
by commitments. So a request of a person that is marked with a certificate is compared with its openings: that of
another person does not answer it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mbd.formats.request import DeletionRequest
from mbd.formats.statement import DeletionStatement, NothingHeldStatement
from mbd.history.history import WITHDRAWN, History
from mbd.steps.revoked import open_subjects
from mbd.trust.lineage_key import LineageKey


@dataclass(frozen=True)
class Answers:
    """Compares requests with statements; it opens commitments."""

    key: LineageKey
    private: Path
    """the folder `certificate.private`"""

    def shown(self, request: DeletionRequest, history: History) -> bool:
        """Return whether the log has the statement that a request is marked with, and it answers the request.

        Raises:
            DataError: It names a person by a commitment that cannot be opened here.
        """
        if not history.shows(request.certificate, request.model, request.modalities, person=request.of_person):
            return False
        digest = str(request.certificate)
        certificate = history.certificates.get(digest)
        if not request.subject or (certificate and set(request.modalities) <= set(certificate.revoked)):
            return True
        if certificate:
            return request.subject in self._references(certificate.subjects, digest)
        held = history.statement(digest)
        return (
            isinstance(held, NothingHeldStatement)
            and (held.predicate.model, held.predicate.modalities) == (request.model, request.modalities)
            and request.subject in self._references(held.predicate.subjects, digest)
        )

    def answered(self, statement: DeletionStatement, digest: str, requests: Iterable[DeletionRequest]) -> set[str]:
        """Return the ids of the requests that a certificate answers: of modalities it revokes, or of its persons."""
        deleted = statement.predicate.deleted
        if deleted.scope == "modalities":
            return {one.id for one in requests if not one.subject and set(one.modalities) <= set(deleted.revoked)}
        references = self._references(deleted.subjects, digest)
        return {one.id for one in requests if one.subject in references and one.modalities == deleted.modalities}

    def _references(self, commitments: Iterable[str], digest: str) -> set[str]:
        return {self.key.subject(person) for person in open_subjects(commitments, digest, self.private)}


def certified_before(request: DeletionRequest, history: History) -> str | None:
    """Return the last certificate in force that states that the modalities of a request were deleted."""
    for one in reversed(history.model(request.model).certificates):
        if history.shows(one.digest, request.model, request.modalities) and not history.effects(one.digest) & WITHDRAWN:
            return one.digest
    return None

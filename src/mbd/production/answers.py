"""Which statement of the log answers which request, and the answer to a person of whom nothing is held.

    whole modalities    a certificate by which they are revoked
    of a person         the same; a certificate that commits to this person; or the statement that nothing was held

A request is marked with a certificate, and certificates name persons by commitments. So a request of a person is
compared with the openings of its certificate: that of another person does not answer it. The ids of persons are in no
published or logged byte: requests name them by pseudonyms, certificates and statements by salted commitments.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mbd.certificate.publish import announce
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.files import canonical_digest
from mbd.formats.files import CERTIFICATE
from mbd.formats.predicate import RequestReference
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import DeletionStatement, NothingHeld, NothingHeldStatement, subjects_of
from mbd.history.history import WITHDRAWN, History
from mbd.history.lineage import read_subject
from mbd.params import Params
from mbd.production.releases import Start
from mbd.production.request_store import refuse_several
from mbd.records import now
from mbd.steps.publish import open_publisher
from mbd.steps.revoked import open_subjects
from mbd.storage import open_private
from mbd.trust.commitments import Commitments, LineageKey, read_lineage_key


@dataclass(frozen=True)
class Answers:
    """Compares requests with statements; it opens commitments."""

    key: LineageKey
    private: Path
    """the folder `certificate.private`"""

    def is_answered(self, request: DeletionRequest, history: History) -> bool:
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
            return request.subject in self._pseudonyms(certificate.subjects, digest)
        held = history.statement(digest)
        return (
            isinstance(held, NothingHeldStatement)
            and (held.predicate.model, held.predicate.modalities) == (request.model, request.modalities)
            and request.subject in self._pseudonyms(held.predicate.subjects, digest)
        )

    def answered_by(self, statement: DeletionStatement, digest: str, requests: Iterable[DeletionRequest]) -> set[str]:
        """Return the ids of the requests that a certificate answers: of modalities it revokes, or of its persons."""
        deleted = statement.predicate.deleted
        if deleted.scope == "modalities":
            return {r.id for r in requests if not r.subject and set(r.modalities) <= set(deleted.revoked)}
        pseudonyms = self._pseudonyms(deleted.subjects, digest)
        return {r.id for r in requests if r.subject in pseudonyms and r.modalities == deleted.modalities}

    def _pseudonyms(self, commitments: Iterable[str], digest: str) -> set[str]:
        return {self.key.subject(person) for person in open_subjects(commitments, digest, self.private)}


def certified_before(request: DeletionRequest, history: History) -> str | None:
    """Return the last certificate in force that states that the modalities of a request were deleted."""
    for digest in (certificate.digest for certificate in reversed(history.model(request.model).certificates)):
        if history.shows(digest, request.model, request.modalities) and not history.effects(digest) & WITHDRAWN:
            return digest
    return None


def holds_recordings(features: Path, modalities: Sequence[str], subject: str) -> bool:
    """Return whether any split of the data has a recording of a person in one of these modalities."""
    data = FeatureSet.open(features)
    return any(
        bool(((split.groups == subject) & split.available[modality]).any())
        for split in map(data.split, data.manifest.splits)
        for modality in modalities
    )


def read_subjects(params: Params, url: str, pseudonyms: Sequence[str]) -> list[str]:
    """Return the ids of the persons that pseudonyms stand for, from the private part of the store, without repetition.

    Raises:
        DataError: A reference is unknown or damaged.
    """
    private, key = open_private(url, params.store), read_lineage_key(params.certificate)
    return sorted({read_subject(private, pseudonym, key) for pseudonym in pseudonyms})


def refuse_not_held(
    params: Params, url: str, features: Path, modalities: Sequence[str], pseudonyms: Sequence[str]
) -> None:
    """Refuse to delete from persons of whom the data has nothing in a modality; a request gets a statement of that."""
    refuse_several(modalities)
    persons = read_subjects(params, url, pseudonyms)
    if unknown := [subject for subject in persons if not holds_recordings(features, modalities, subject)]:
        raise UsageError(
            f"of {len(unknown)} of {len(persons)} persons no recording of {modalities[0]} is held",
            key="subjects",
            hint="`mbd request run` answers their requests by an earlier certificate, or by a statement",
        )


def answer_person(start: Start, request: DeletionRequest, subject: str, url: str) -> tuple[str, str]:
    """Answer a request of a person of whom the data has nothing: by an earlier certificate, or by a statement.

    Returns the SHA-256 of its envelope, and a note for the request.
    """
    history, params = start.base.history, start.base.params
    private = Path(params.certificate.private)
    for certificate in history.model(request.model).persons:
        shows = history.shows(certificate.digest, request.model, request.modalities, person=True)
        if shows and subject in open_subjects(certificate.subjects, certificate.digest, private):
            return certificate.digest, "deleted before"
    if start.base.release is None:
        raise UsageError(
            "the log has no release of this model", value=request.model, hint="register it: `mbd register`"
        )
    data, commitments = FeatureSet.open(start.data), Commitments()
    statement = NothingHeldStatement(
        subject=subjects_of({CERTIFICATE: start.base.release.digest}),
        predicate=NothingHeld(
            model=request.model,
            modalities=request.modalities,
            subjects=commitments.to_all("subject", [subject]),
            data=start.base.key.data(canonical_digest(data.digests())),
            rows=sum(entry.rows for entry in data.manifest.splits.values()),
            request=RequestReference(reference=f"request-{request.id}"),
            issued=now(),
        ),
    )
    digest = announce(statement, params.certificate, open_publisher(params, url), commitments)
    return digest, "nothing was held of this person"

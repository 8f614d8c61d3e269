"""A person's request, in whichever split they are: what is part of `request run` and of the pipeline `delete`.

    in a split that training reads      the model is made again without their recordings: exact
    in other splits only                their recordings leave the data; the weights stay, none depends on them: exact
    in no split                         a signed, logged statement that nothing was held

Persons of one modality are deleted together. Their ids are in no published or logged byte: requests name them by
references, certificates and statements by salted commitments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mbd.certificate.publish import announce
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.files import canonical_digest
from mbd.formats.predicate import RequestReference
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import CERTIFICATE, NothingHeld, NothingHeldStatement, subjects_of
from mbd.history.lineage import read_subject
from mbd.params import Params
from mbd.production.request_store import refuse_several
from mbd.production.start import Start
from mbd.records import now
from mbd.steps.publish import open_publisher
from mbd.steps.revoked import open_subjects
from mbd.storage import open_private
from mbd.trust.commitments import Commitments
from mbd.trust.lineage_key import read_lineage_key


@dataclass(frozen=True)
class AnsweredRequest:
    """A statement that answers a request without a deletion."""

    statement: str
    """SHA-256 of its envelope"""
    note: str


def holds(features: Path, modalities: Sequence[str], subject: str) -> bool:
    """Return whether any split of the data has a recording of a person in one of these modalities."""
    data = FeatureSet.open(features)
    return any(
        bool(((split.groups == subject) & split.available[modality]).any())
        for split in map(data.split, data.manifest.splits)
        for modality in modalities
    )


def read_subjects(params: Params, url: str, references: Sequence[str]) -> list[str]:
    """Return the ids of the persons that references into the private part of the store stand for, without repetition.

    Raises:
        DataError: A reference is unknown or damaged.
    """
    private, key = open_private(url, params.store), read_lineage_key(params.certificate)
    return sorted({read_subject(private, reference, key) for reference in references})


def refuse_not_held(
    params: Params, url: str, features: Path, modalities: Sequence[str], references: Sequence[str]
) -> None:
    """Refuse to delete from persons of whom the data has nothing in a modality; a request gets a statement of that."""
    refuse_several(modalities)
    persons = read_subjects(params, url, references)
    if unknown := [subject for subject in persons if not holds(features, modalities, subject)]:
        raise UsageError(
            f"of {len(unknown)} of {len(persons)} persons no recording of {modalities[0]} is held",
            key="subjects",
            hint="`mbd request run` answers their requests by an earlier certificate, or by a statement",
        )


def answer(start: Start, request: DeletionRequest, subject: str, url: str) -> AnsweredRequest:
    """Answer a request of a person of whom the data has nothing: by an earlier certificate, or by a statement."""
    history, params = start.base.history, start.params
    private = Path(params.certificate.private)
    for one in (one for one in history.model(request.model).persons if one.modalities == request.modalities):
        if subject in open_subjects(one.subjects, one.digest, private):
            return AnsweredRequest(one.digest, "deleted before")
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
    return AnsweredRequest(digest, "nothing was held of this person")

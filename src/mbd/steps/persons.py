"""A person's request, in whichever split they are: what is part of `request run`.

    in a split that training reads      the model is made again without their recordings: exact
    in other splits only                their recordings leave the data; the weights stay, none depends on them: exact
    in no split                         a signed, logged statement that nothing was held

Persons of one modality are deleted together. Their ids are in no published or logged byte: requests name them by
references, certificates and statements by salted commitments.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mbd.certificate.commitments import Commitments
from mbd.certificate.publish import announce
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.files import canonical_digest
from mbd.formats.model import ModelRecord
from mbd.formats.predicate import RequestReference
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import CERTIFICATE, NothingHeld, NothingHeldStatement, subjects_of
from mbd.params import Params
from mbd.records import now
from mbd.steps import certify, delete, evaluate
from mbd.steps.base_model import BaseModel
from mbd.steps.publish import open_publisher
from mbd.steps.revoked import open_subjects


@dataclass(frozen=True)
class Start:
    """Where a deletion starts: the current release, its record and its data, and a private folder to work in."""

    params: Params
    base: BaseModel
    model: Path
    record: ModelRecord
    data: Path
    work: Path


@dataclass(frozen=True)
class AnsweredRequest:
    """A statement that answers a request without a deletion."""

    statement: str
    """SHA-256 of its envelope"""
    note: str


def holds(start: Start, request: DeletionRequest, subject: str) -> bool:
    """Return whether any split of the data has a recording of a person in a modality of their request."""
    data = FeatureSet.open(start.data)
    return any(
        bool(((split.groups == subject) & split.available[modality]).any())
        for split in map(data.split, data.manifest.splits)
        for modality in request.modalities
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


def certified(start: Start, modalities: tuple[str, ...], subjects: Sequence[str]) -> tuple[str, Path]:
    """Delete a modality of persons, evaluate and certify; return the certificate's digest and the new model."""
    work, deletion = start.work, start.params.deletion.model_copy(update={"method": "exact"})
    params, deleted = start.params.model_copy(update={"deletion": deletion}), work / "deleted"
    delete.run(params, start.data, start.model, modalities, subjects, deleted)
    listed = FeatureSet.open(start.data).modalities
    not_taken = tuple(m for m in listed if m not in start.record.inputs)
    (work / "retained").mkdir()
    leave_out(start.data, work / "retained", dict.fromkeys(modalities, frozenset(subjects)), not_taken)
    evaluate.run(params, work / "retained", [deleted], work / "evaluation")
    request = work / "request.json"
    done = certify.run(params, deleted, None, work / "evaluation", work / "bundle", request=request)
    return done.certificate, deleted

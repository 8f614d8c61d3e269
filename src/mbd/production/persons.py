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
from tempfile import gettempdir

from mbd.certificate.publish import announce
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.files import canonical_digest
from mbd.formats.deletion import DELETION, DeletionRecord, DeletionTarget
from mbd.formats.predicate import RequestReference
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import CERTIFICATE, NothingHeld, NothingHeldStatement, subjects_of
from mbd.history.lineage import read_subject
from mbd.model.checkpoint import load_model
from mbd.params import Params
from mbd.production.request_store import refuse_several
from mbd.production.start import Start, not_taken
from mbd.records import now
from mbd.shredding.private_folder import private_folder
from mbd.steps import certify, delete, evaluate
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


def deleted_from(
    params: Params, features: Path, model: Path, modalities: Sequence[str], subjects: Sequence[str], out: Path
) -> delete.DeletionResult | None:
    """Delete a modality of persons; it is exact, whatever the method for whole modalities is."""
    deletion = params.deletion.model_copy(update={"method": "exact"})
    return delete.run(params.model_copy(update={"deletion": deletion}), features, model, modalities, subjects, out)


def evaluated(params: Params, features: Path, deleted: Path, out: Path) -> None:
    """Evaluate a model from which recordings of persons were deleted, on data without these."""
    record, request = load_model(deleted)[0], _target(deleted)
    recordings = dict.fromkeys(request.modalities, frozenset(request.subjects))
    with private_folder(gettempdir()) as retained:
        leave_out(features, retained, recordings, not_taken(record, features))
        evaluate.run(params, retained, [deleted], out)


def _target(deleted: Path) -> DeletionTarget:
    return DeletionRecord.read(deleted / DELETION, "deletion record", "delete again").request


def certified(start: Start, modalities: tuple[str, ...], subjects: Sequence[str]) -> tuple[str, Path]:
    """Delete a modality of persons, evaluate and certify; return the certificate's digest and the new model."""
    params, work, deleted = start.params, start.work, start.work / "deleted"
    deleted_from(params, start.data, start.model, modalities, subjects, deleted)
    evaluated(params, start.data, deleted, work / "evaluation")
    request = work / "request.json"
    done = certify.run(params, deleted, None, work / "evaluation", work / "bundle", request=request)
    return done.certificate, deleted

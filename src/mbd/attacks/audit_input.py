"""The models of one audit: before and after the deletion, and the reference that never saw the modality.

Models that do not belong together are refused here, before any attack: results mean something only if
the models were made from the same data, for the same task, and if the reference really is one. When a released model is
attacked again later, there is no model before: its weights were purged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mbd.attacks.target_model import Role
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DELETION, DeletionRecord, read_deletion
from mbd.formats.files import MODEL
from mbd.formats.model import ModelRecord
from mbd.model.checkpoint import load_model
from mbd.model.compatible import open_for, refuse_foreign, refuse_other_data
from mbd.tensors import Array


@dataclass(frozen=True)
class StoredModel:
    """A model folder: record, weights, and the record of the deletion that made it, if any."""

    folder: Path
    record: ModelRecord
    tensors: dict[str, Array]
    deletion: DeletionRecord | None


@dataclass(frozen=True)
class AuditInput:
    """The models and the data of one audit."""

    gone: tuple[str, ...]
    """the deleted modalities, in the model's order"""
    before: StoredModel | None
    """None if the old weights were purged"""
    after: StoredModel
    reference: StoredModel
    data: FeatureSet
    """with all modalities of the model before"""

    @property
    def retained(self) -> tuple[str, ...]:
        """The modalities that are left."""
        whole = self.before.record.inputs if self.before else self.data.modalities
        return tuple(m for m in whole if m not in self.gone)

    @property
    def models(self) -> dict[Role, StoredModel]:
        """The models by role."""
        old: dict[Role, StoredModel] = {"before": self.before} if self.before else {}
        return {**old, "after": self.after, "reference": self.reference}

    @property
    def whole(self) -> StoredModel:
        """The model that the others must resemble: the one before, or else the one after."""
        return self.before or self.after


def open_audit(
    features: Path, before: Path | None, after: Path, reference: Path, modalities: Sequence[str]
) -> AuditInput:
    """Read the models and open the data.

    Raises:
        DataError: The models do not belong together, or not to the data.
        UsageError: The modalities do not match the deletion.

    """
    old = _read(before) if before else None
    new, never = _read(after), _read(reference)
    if not modalities:
        raise UsageError("no deleted modality was named", key="--modality")
    if old:
        refuse_foreign(old.record, modalities)
        data = open_for(old.record, features)
    else:
        data = _open_released(new.record, features, modalities)
    gone = tuple(m for m in (old.record.inputs if old else data.modalities) if m in modalities)
    audit = AuditInput(gone, old, new, never, data)
    if not audit.retained:
        raise UsageError(
            "no modality is left, so there is no model to attack",
            key="--modality",
            value=", ".join(gone),
            hint="withdraw a model all of whose modalities are revoked",
        )
    for stored in audit.models.values():
        refuse_other_data(stored.record, data, stored.folder / MODEL)
    _refuse_other_kind(audit)
    _refuse_other_deletion(audit)
    _refuse_other_inputs(audit)
    _refuse_no_reference(audit)
    return audit


def _read(folder: Path) -> StoredModel:
    record, tensors = load_model(folder)
    return StoredModel(folder, record, tensors, read_deletion(folder))


def _open_released(record: ModelRecord, features: Path, modalities: Sequence[str]) -> FeatureSet:
    """Open the data of a released model together with the deleted modalities, which attacks need."""
    there = {*open_for(record, features).modalities, *modalities}
    whole = FeatureSet.open(features)
    if unknown := [m for m in modalities if m not in whole.modalities]:
        raise UsageError(
            f"the data has no {unknown[0]} to attack with",
            key="--modality",
            hint=f"it has {', '.join(whole.modalities)}; give the data that the model was trained on",
        )
    return FeatureSet.open(features, without=tuple(m for m in whole.modalities if m not in there))


def _refuse_other_kind(audit: AuditInput) -> None:
    old = audit.whole.record
    for stored in (audit.after, audit.reference):
        for what in ("backbone", "task", "classes"):
            if getattr(stored.record, what) != getattr(old, what):
                raise DataError(
                    f"the models do not belong together: they differ in {what}",
                    file=stored.folder / MODEL,
                    key=what,
                    value=f"{getattr(stored.record, what)}, not {getattr(old, what)}",
                    hint="the model after is made from the one before; the reference is trained with the same "
                    "parameters and --without the deleted modalities",
                )


def _refuse_other_inputs(audit: AuditInput) -> None:
    if missing := [m for m in audit.retained if m not in audit.after.record.inputs]:
        raise DataError(
            f"the model after takes no {missing[0]}, which was not named as deleted",
            file=audit.after.folder / MODEL,
            hint="name every deleted modality with --modality",
        )


def _refuse_no_reference(audit: AuditInput) -> None:
    record, gone = audit.reference.record, set(audit.gone)
    seen = gone & {m for entry in record.tensors.values() for m in (*entry.sees, entry.belongs_to) if m}
    seen |= gone & {PurePosixPath(name).stem for name in record.data.files} | gone & set(record.modalities)
    if names := ", ".join(sorted(seen or record.revoked)):
        raise DataError(
            f"the reference model was trained on {names}; it cannot serve as a reference",
            file=audit.reference.folder / MODEL,
            key="--reference",
            hint=f"mbd train --without {' --without '.join(audit.gone)} makes one",
        )
    if tuple(record.modalities) != audit.retained or _parameters(record) != _parameters(audit.whole.record):
        raise DataError(
            f"the reference is a model of another kind: it takes {', '.join(record.modalities)}, "
            f"and what is left here is {', '.join(audit.retained)}"
            if tuple(record.modalities) != audit.retained
            else "the reference was trained with other parameters of the model",
            file=audit.reference.folder / MODEL,
            key="--reference",
            hint="train it with the same parameters and --without the deleted modalities",
        )


def _parameters(record: ModelRecord) -> dict[str, object]:
    """Return the parameters of a model but for the modalities that it is built for, and for how it was trained."""
    return {key: value for key, value in record.spec.items() if key not in ("shapes", "tags", "training")}


def _refuse_other_deletion(audit: AuditInput) -> None:
    """Refuse a deletion from another model or of other modalities, according to its record."""
    deletion, file = audit.after.deletion, audit.after.folder / DELETION
    if deletion is None:
        return
    if audit.before and deletion.before != audit.before.record.sha256:
        raise DataError(
            "the model after was not made from the model before",
            file=file,
            key="before",
            value=f"sha256 {deletion.before}, the model before has {audit.before.record.sha256}",
            hint="give the model that was deleted from as --before",
        )
    if deletion.request.subjects:
        raise UsageError(
            "this deletion removed single subjects, but the attacks are about whole modalities",
            file=file,
            value=", ".join(deletion.request.subjects),
            hint="train without these subjects' recordings and compare the digests: they are equal",
        )
    if set(deletion.request.modalities) != set(audit.gone):
        raise UsageError(
            f"the deletion was one of {', '.join(deletion.request.modalities)}",
            file=file,
            key="--modality",
            value=", ".join(audit.gone),
            hint="name each of the modalities that were deleted, and no other, with --modality",
        )

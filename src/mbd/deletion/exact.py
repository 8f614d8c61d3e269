"""Method `exact`: on the lattice, every tensor that saw the modality is dropped; the rest never saw it.

Whole modalities: every tensor whose provenance names one is dropped. The rest is byte for byte the model that training
without these modalities gives (ε = 0), which anyone with the data can check by training it.

Named subjects: every module whose tag contains the modality is trained again on the rows without these subjects'
recordings of it; all other tensors stay unchanged, and projections and strengths of the other modalities are taken
from them. The result is byte for byte that of training without these recordings.

No state of training is kept for this. A module's fits need the Gram matrix of each fold, which has as many numbers as
the fold's rows: storing it beside the model would store the recordings. It is computed again from the data.
"""

from dataclasses import replace

import numpy as np

from mbd.deletion.outcome import DeletionOutcome, ModelBefore, Phases
from mbd.errors import DataError, UsageError
from mbd.features.rows import Rows
from mbd.formats.deletion import DeletionTarget
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import DataRecord
from mbd.params import Params
from mbd.params.learning import LatticeSettings
from mbd.tensors import Array

_ASSUMPTIONS = (
    "The provenance in model.json is correct: each tensor was computed only from the data of the modalities it names. "
    "Training without the modality gives the same bytes for every retained tensor; anyone who has the retained data "
    "can check this by training.",
    "The architecture and the hyperparameters were not chosen by looking at the deleted data.",
)
_OF_SUBJECTS = (
    "The subjects' recordings of this modality were deleted; their other modalities and their labels were not.",
)


def delete(request: DeletionTarget, before: ModelBefore, params: Params) -> DeletionOutcome:
    """Delete `request` from a lattice model; the parameters in effect are those the model was trained with."""
    del params
    if request.subjects:
        return _delete_subjects(request, before)
    phases = Phases()
    with phases.phase("drop"):
        gone = set(request.modalities)
        kept = {name: t for name, t in before.record.tensors.items() if not gone & set(t.sees)}
        record = before.record.model_copy(
            update={
                "modalities": {m: d for m, d in before.record.modalities.items() if m not in gone},
                "revoked": (*before.record.revoked, *request.modalities),
                "data": _without(before.record.data, gone),
                "guarantee": _guarantee(),
                "tensors": kept,
            }
        )
        tensors = {name: before.tensors[name] for name in kept}
    dropped = sorted(set(before.record.tensors) - set(kept))
    return DeletionOutcome(
        record=record,
        tensors=tensors,
        indices={},
        facts={"dropped_tensors": dropped, "kept_tensors": len(kept)},
        phases=phases,
    )


def _guarantee(*assumptions: str) -> Guarantee:
    return Guarantee(kind="exact", epsilon=0.0, delta=0.0, assumptions=(*_ASSUMPTIONS, *assumptions))


def _delete_subjects(request: DeletionTarget, before: ModelBefore) -> DeletionOutcome:
    if len(request.modalities) != 1:
        raise UsageError(
            "subjects can be deleted from one modality at a time",
            key="--modality",
            value=", ".join(request.modalities),
            hint="delete again for the next modality",
        )
    modality, phases, record = request.modalities[0], Phases(), before.record
    with phases.phase("read"):
        rows = before.data.split("train").load()
        theirs = _recordings(rows, modality, request.subjects)
        available = {**rows.available, modality: rows.available[modality] & ~theirs}
        rows = replace(rows, available=available)
    with phases.phase("retrain"):
        from mbd.training.lattice import FittedModalities, train_modules  # noqa: PLC0415 -- dropping modules needs no training

        spec = LatticeSettings.model_validate(record.spec)
        retrained, provenance, _ = train_modules(
            rows,
            spec,
            seed=int(record.seed),
            classes=len(record.classes),
            only=modality,
            found=FittedModalities.in_model(before.tensors, [m for m in record.modalities if m != modality]),
        )
    kept = {name: t for name, t in record.tensors.items() if modality not in t.sees}
    tensors: dict[str, Array] = {name: before.tensors[name] for name in kept} | retrained
    return DeletionOutcome(
        record=record.model_copy(update={"tensors": kept | provenance, "guarantee": _guarantee(*_OF_SUBJECTS)}),
        tensors=tensors,
        indices={},
        facts={
            "subjects": len(request.subjects),
            "recordings_forgotten": int(theirs.sum()),
            "retrained_tensors": len(retrained),
            "kept_tensors": len(kept),
        },
        phases=phases,
    )


def _recordings(rows: Rows, modality: str, subjects: tuple[str, ...]) -> Array:
    """Return which rows are recordings of these subjects (groups) in this modality."""
    for subject in subjects:
        if subject not in rows.groups:
            raise DataError(
                "no train row belongs to this subject",
                key="--subject",
                value=subject,
                hint="subjects are the groups of the FeatureSet (video or speaker)",
            )
    theirs: Array = np.isin(rows.groups, subjects) & rows.available[modality]
    others = np.any([bits for m, bits in rows.available.items() if m != modality], axis=0)
    if (theirs & ~others).any():
        raise DataError(
            f"{int((theirs & ~others).sum())} rows of these subjects have no other modality and would be left empty",
            key="--subject",
            value=rows.groups[theirs & ~others][0],
            hint="drop these rows from the data and train again",
        )
    return theirs


def _without(data: DataRecord, gone: set[str]) -> DataRecord:
    files = {
        name: d for name, d in data.files.items() if name.rpartition("/")[2].removesuffix(".safetensors") not in gone
    }
    return data.model_copy(update={"files": files})

"""Method `exact`: what is released never saw the modality.

A lattice drops every tensor that saw it. Any other model is replaced by the one that was trained without it: the given
reference, or one that is trained now, with the parameters and the seed of the model.

On the lattice, whole modalities: every tensor whose provenance names one is dropped. The rest is byte for byte the
model that training without these modalities gives (ε = 0), which anyone with the data can check by training it.

Named subjects: every module whose tag contains the modality is trained again on the rows without these subjects'
recordings of it; all other tensors stay unchanged, and projections and strengths of the other modalities are taken
from them. The result is byte for byte that of training without these recordings.

No state of training is kept for this. A module's fits need the Gram matrix of each fold, which has as many numbers as
the fold's rows: storing it beside the model would store the recordings. It is computed again from the data.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from mbd.deletion.outcome import DeletionOutcome, ModelBefore, Phases
from mbd.deletion.reference import refuse_unsuitable_reference
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.formats.deletion import DeletionTarget
from mbd.formats.features import MANIFEST
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import DataRecord, LatticeSpec, ModelRecord, TensorRecord
from mbd.model.compatible import refuse_other_data
from mbd.model.lattice import chosen_tags
from mbd.params import Params
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.trained import recorded_params

_OF_TRAINING = (
    "The architecture and the hyperparameters were not chosen by looking at the deleted data.",
    "Which rows there are, their labels, splits and groups are no part of the deleted modality: training without it "
    "reads the same rows.",
)
_ASSUMPTIONS = (
    "The provenance in model.json is correct: each tensor was computed only from the data of the modalities it names. "
    "Training without the modality gives the same bytes for every retained tensor; anyone who has the retained data "
    "can check this by training.",
    *_OF_TRAINING,
)
_REPLACED = (
    "The model was trained without the modality: of its files, no byte was read. Training is deterministic, so anyone "
    "who has the retained data and the parameters can check this by training.",
    *_OF_TRAINING,
)
_OF_SUBJECTS = (
    "The subjects' recordings of this modality were deleted; their other modalities and their labels were not.",
)


def delete(request: DeletionTarget, before: ModelBefore, params: Params) -> DeletionOutcome:
    """Delete `request`; the parameters of the model are those that it was trained with."""
    if not BACKBONES.get(before.record.backbone).separable:
        return _replace(request, before, params)
    if request.subjects:
        return _delete_subjects(request, before, params)
    phases = Phases()
    with phases.phase("drop"):
        gone = set(request.modalities)
        kept = {name: t for name, t in before.record.tensors.items() if not gone & set(t.sees)}
        record = before.record.model_copy(
            update={
                "modalities": {m: d for m, d in before.record.modalities.items() if m not in gone},
                "revoked": (*before.record.revoked, *request.modalities),
                "spec": BACKBONES.get(before.record.backbone).spec_without(before.record.spec, gone),
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


def _replace(request: DeletionTarget, before: ModelBefore, params: Params) -> DeletionOutcome:
    """Release the model that never saw the modalities of the request."""
    if request.subjects:
        raise UsageError(
            f"a {before.record.backbone} model forgets whole modalities, not those of single subjects",
            key="--subject",
            value=", ".join(request.subjects),
            hint="train a lattice (model.backbone=lattice), or drop these recordings from the data and train again",
        )
    phases, revoked = Phases(), (*before.record.revoked, *request.modalities)
    gone = tuple(m for m in FeatureSet.open(before.data.folder).modalities if m in revoked)
    retained = FeatureSet.open(before.data.folder, without=gone, verify=True)
    if before.reference is not None:
        with phases.phase("compare"):
            record, tensors = before.reference
            refuse_unsuitable_reference(record, before.record.model_copy(update={"revoked": revoked}))
            refuse_other_data(record, retained, retained.folder / MANIFEST)
    else:
        with phases.phase("train"), tempfile.TemporaryDirectory() as work:
            own = recorded_params(before.record, params)
            trained = BACKBONES.get(before.record.backbone).train(retained, own, work=Path(work), progress=False)
            record, tensors = trained.record, trained.tensors
    return DeletionOutcome(
        record=record.model_copy(
            update={
                "revoked": revoked,
                "guarantee": Guarantee(kind="exact", epsilon=0.0, delta=0.0, assumptions=_REPLACED),
            }
        ),
        tensors=tensors,
        indices={},
        facts={"replaced_by": "the reference" if before.reference else "a model trained now"},
        phases=phases,
    )


def _delete_subjects(request: DeletionTarget, before: ModelBefore, params: Params) -> DeletionOutcome:
    if len(request.modalities) != 1:
        raise UsageError(
            "subjects can be deleted from one modality at a time",
            key="--modality",
            value=", ".join(request.modalities),
            hint="delete again for the next modality",
        )
    modality, phases, record = request.modalities[0], Phases(), before.record
    with phases.phase("read"):
        rows = _training_rows(record, before.data)
        theirs = _recordings(rows, modality, request.subjects)
        available = {**rows.available, modality: rows.available[modality] & ~theirs}
        rows = replace(rows, available=available)
    with phases.phase("retrain"):
        retrained, provenance = _retrained(rows, theirs, modality, before, params)
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


def _retrained(
    rows: Rows, theirs: Array, modality: str, before: ModelBefore, params: Params
) -> tuple[dict[str, Array], dict[str, TensorRecord]]:
    """Train all modules that hold the modality on rows of which `theirs` lack it."""
    # Dropping modules needs no training.
    from mbd.training.lattice import FittedModalities, train_modules  # noqa: PLC0415

    record, seed = before.record, int(before.record.seed)
    spec = LatticeSpec.model_validate(record.spec)
    if spec.member:
        from mbd.training.lattice.networks import Training, train_networks  # noqa: PLC0415 -- imports torch

        settings, manifest = params.training, before.data.manifest
        training = Training(before.data.folder, manifest, spec, seed, settings.processes, settings.device)
        tags = [tag for tag in chosen_tags(spec, record.modalities) if modality in tag]
        with tempfile.TemporaryDirectory() as work:
            return train_networks(training, tags, work=Path(work), lacking=(modality, theirs))[:2]
    found = FittedModalities.in_model(before.tensors, [m for m in record.modalities if m != modality])
    return train_modules(rows, spec, seed=seed, classes=len(record.classes), only=modality, found=found)[:2]


def _training_rows(record: ModelRecord, data: FeatureSet) -> Rows:
    from mbd.training.lattice import training_rows  # noqa: PLC0415 -- dropping modules needs no training

    return training_rows(data, LatticeSpec.model_validate(record.spec))


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

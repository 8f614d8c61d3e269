"""Method `exact`: what is released never saw the modality.

A separable backbone (its registry object says so; the lattice is one) drops every tensor that saw it. Any other model
is replaced by the one that was trained without it: the given reference, or one that is trained now, with the parameters
and the seed of the model. Of a reference that was trained elsewhere (`mbd import`) nothing shows what it saw:
releasing it is attested, not exact.

Whole modalities of a separable model: every tensor whose provenance names one is dropped. The rest is byte for byte the
model that training without these modalities gives (ε = 0), which anyone with the data can check by training it.

Named subjects: the data without their recordings of the modality is what the new model is made from. A backbone that
can `retrain` trains every tensor again that has seen the modality; all others stay unchanged. Any other model is
trained again. The result is byte for byte that of training without these recordings. Where training never read a split
in which they have recordings, nothing is trained: the weights stay, because no number of them depends on these
recordings.

No state of training is kept for this, because sums over rows would not do. What a module sums are functions of a row's
coordinates p = P(x), and the projection P (mean, deviation, principal directions) is made from the rows that are left:
it moves with the persons who ask, and with it the coordinates of every other row, their rounding to the grid, and their
distances to the landmarks, which are drawn at the scale of P. For a function f that is not linear in x, Σ f(P′(x)) does
not follow from sums Σ f(P(x)) of training. It would have to be kept for each P′ that persons can lead to; sums of
Gaussian bumps at all places and scales determine the rows up to their order. Nor does the median of the out-of-fold
errors follow from sums. What is sufficient tells the rows, and the rows are in the data already.
"""

import tempfile
from pathlib import Path

import numpy as np

from mbd.deletion.methods import DeletionOutcome, ModelBefore, Phases
from mbd.deletion.reference import refuse_unsuitable_reference
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.formats.deletion import DeletionTarget
from mbd.formats.features import MANIFEST
from mbd.formats.guarantee import Guarantee
from mbd.formats.model import DataRecord, ModelRecord
from mbd.model.compatible import refuse_other_data
from mbd.params import Params
from mbd.registry import BACKBONES
from mbd.tensors import Array
from mbd.training.trained import data_record, recorded_params

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
_ELSEWHERE = (
    "The model was trained elsewhere and imported. That its training read nothing of the modality is what the issuer "
    "says (`mbd import --trained-on`): its parameters and seed are not recorded, so the training cannot be repeated.",
    *_OF_TRAINING,
)
_OF_SUBJECTS = (
    "The subjects' recordings of this modality were deleted; their other modalities and their labels were not.",
)
_NOT_READ = (
    "No number of the weights depends on the deleted recordings: training has not read the splits that they are in.",
)


def delete(request: DeletionTarget, before: ModelBefore, params: Params) -> DeletionOutcome:
    """Delete `request`; the parameters of the model are those that it was trained with."""
    if request.subjects:
        return _delete_subjects(request, before, params)
    if not BACKBONES.get(before.record.backbone).separable:
        return _replace(request, before, params)
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
                "guarantee": _guarantee(before.record, _ASSUMPTIONS),
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


def _guarantee(released: ModelRecord, assumptions: tuple[str, ...]) -> Guarantee:
    """Return the guarantee of a released model: exact only if its training is recorded, so that it can be repeated."""
    if not released.training_is_recorded:
        return Guarantee(kind="attested", assumptions=_ELSEWHERE)
    return Guarantee(kind="exact", epsilon=0.0, delta=0.0, assumptions=assumptions)


def _replace(request: DeletionTarget, before: ModelBefore, params: Params) -> DeletionOutcome:
    """Release the model that never saw the modalities of the request."""
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
                "guarantee": _guarantee(record, _REPLACED),
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
    modality, phases, subjects = request.modalities[0], Phases(), frozenset(request.subjects)
    with phases.phase("read"), tempfile.TemporaryDirectory() as folder:
        used = _splits_with(before.data, modality, subjects)
        listed = FeatureSet.open(before.data.folder).modalities
        not_taken = tuple(m for m in listed if m not in before.data.modalities)
        forgotten = leave_out(before.data.folder, Path(folder), {modality: subjects}, not_taken)
        retained = FeatureSet.open(Path(folder), without=not_taken)
        depends = bool(set(used) & set(_training_reads(before.record)))
        with phases.phase("retrain"):
            record, tensors, kept = (
                _remade(modality, retained, before, params)
                if depends
                else (before.record, dict(before.tensors), len(before.tensors))
            )
    assumptions = (*_ASSUMPTIONS, *_OF_SUBJECTS, *(() if depends else _NOT_READ))
    return DeletionOutcome(
        record=record.model_copy(
            update={
                "guarantee": _guarantee(record, assumptions),
                "data": data_record(retained),
            }
        ),
        tensors=tensors,
        indices={},
        facts={
            "subjects": len(request.subjects),
            "recordings_forgotten": forgotten,
            "splits": list(used),
            "retrained_tensors": len(tensors) - kept,
            "kept_tensors": kept,
        },
        phases=phases,
    )


def _training_reads(record: ModelRecord) -> tuple[str, ...]:
    """Return the splits that a model's numbers depend on.

    What an edit or a fine-tuning has made of a model may depend on any split, and so may what was trained elsewhere.
    """
    if record.guarantee.kind not in ("none", "exact") or not record.training_is_recorded:
        return ("train", "valid", "calibration", "test")
    return BACKBONES.get(record.backbone).recorded(record.spec).splits


def _splits_with(data: FeatureSet, modality: str, subjects: frozenset[str]) -> tuple[str, ...]:
    """Return the splits in which these subjects have recordings of a modality.

    Raises:
        DataError: One of them is in no split.
    """
    found, known = [], set[str]()
    for name in data.manifest.splits:
        split = data.split(name)
        known |= subjects.intersection(split.groups.tolist())
        theirs = np.isin(split.groups, list(subjects)) & split.available[modality]
        if theirs.any():
            found.append(name)
    if subjects - known:
        raise DataError(
            f"no row belongs to {len(subjects - known)} of these subjects",
            key="--subject",
            hint="subjects are the groups of the FeatureSet (video or speaker)",
        )
    return tuple(found)


def _remade(
    modality: str, retained: FeatureSet, before: ModelBefore, params: Params
) -> tuple[ModelRecord, dict[str, Array], int]:
    """Make the model again from data without the recordings: the modules that have seen the modality, or all of it.

    Returns record, tensors, and how many of them are those of the model before.
    """
    record, backbone = before.record, BACKBONES.get(before.record.backbone)
    if backbone.retrain is None:
        with tempfile.TemporaryDirectory() as work:
            trained = backbone.train(retained, recorded_params(record, params), work=Path(work), progress=False)
        now = {"spec": trained.record.spec, "tensors": trained.record.tensors}
        return record.model_copy(update=now), dict(trained.tensors), 0
    tensors, provenance = backbone.retrain(modality, retained, record, before.tensors, params)
    kept = {name: t for name, t in record.tensors.items() if modality not in t.sees}
    unchanged = {name: before.tensors[name] for name in kept}
    return record.model_copy(update={"tensors": kept | provenance}), unchanged | tensors, len(kept)


def _without(data: DataRecord, gone: set[str]) -> DataRecord:
    files = {
        name: d for name, d in data.files.items() if name.rpartition("/")[2].removesuffix(".safetensors") not in gone
    }
    return data.model_copy(update={"files": files})

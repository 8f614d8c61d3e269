"""How far a model is from one that never saw the modality: measured, where there is such a reference.

‖W − W^{-m}‖ is taken over what both have, inside and outside the edited coordinates, before and after the deletion. It
shows how much of the difference an edit can touch at all. It is not a bound: training twice with other seeds
gives distances of the same kind.

Of a certified deletion only the distance after is recorded: the one before is an exact number about the old weights,
outside the noise, and publishing it would break the claim.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mbd.deletion.methods import DeletionOutcome, ModelBefore
from mbd.errors import DataError
from mbd.formats.model import ModelRecord
from mbd.registry import BACKBONES
from mbd.tensors import Array


def distances(
    tensors: Mapping[str, Array], reference: Mapping[str, Array], indices: Mapping[str, Array]
) -> dict[str, float]:
    """Return the L2 distance to a reference of the same shapes at the flat positions in `indices`, and elsewhere."""
    inside = outside = 0.0
    for name, tensor in tensors.items():
        squares = np.square(tensor.astype(np.float64) - reference[name]).ravel()
        chosen = float(squares[indices[name]].sum()) if name in indices else 0.0
        inside, outside = inside + chosen, outside + max(0.0, float(squares.sum()) - chosen)
    return {"inside": float(np.sqrt(inside)), "outside": float(np.sqrt(outside))}


def reference_distances(
    model_before: ModelBefore,
    outcome: DeletionOutcome,
    reference: ModelRecord,
    weights: Mapping[str, Array],
    gone: Sequence[str],
) -> dict[str, Any]:
    """Return the distances of the model before and after the deletion to the `reference` with these `weights`."""
    refuse_unsuitable_reference(reference, outcome.record)
    before = _counterparts(model_before.record, model_before.tensors, weights, gone)
    after = _counterparts(outcome.record, outcome.tensors, weights, gone)
    masks = {name: np.zeros(array.shape, bool) for name, array in outcome.tensors.items()}
    for name, positions in outcome.indices.items():
        masks[name].reshape(-1)[positions] = True
    kept = _counterparts(outcome.record, masks, weights, gone)
    indices = {name: np.flatnonzero(mask) for name, mask in kept.items()}
    edited, comparable = (sum(int(mask.sum()) for mask in part.values()) for part in (masks, kept))
    published = {} if outcome.record.guarantee.kind == "certified" else {"before": distances(before, weights, indices)}
    return {
        "sha256": reference.sha256,
        **published,
        "after": distances(after, weights, indices),
        "edited_without_counterpart": edited - comparable,
    }


def _counterparts(
    record: ModelRecord, arrays: Mapping[str, Array], weights: Mapping[str, Array], gone: Sequence[str]
) -> dict[str, Array]:
    """Return what is left of `arrays` where the reference has something to compare it with."""
    left = BACKBONES.get(record.backbone).counterparts(record, arrays, gone)
    for name, array in weights.items():
        if name not in left or left[name].shape != array.shape:
            raise DataError(
                "the reference is a model of another kind or shape",
                key=name,
                value=f"{array.shape}, here {left[name].shape if name in left else 'missing'}",
                hint="train it with the same parameters and --without the deleted modalities",
            )
    return {name: left[name] for name in weights}


def refuse_unsuitable_reference(reference: ModelRecord, record: ModelRecord) -> None:
    """Refuse a reference of another kind than the model after the deletion, or that has seen a revoked modality."""
    if reference.backbone != record.backbone or reference.inputs != record.inputs:
        raise DataError(
            f"the reference takes {', '.join(reference.inputs)} ({reference.backbone}), and the model after the "
            f"deletion {', '.join(record.inputs)} ({record.backbone})",
            key="--reference",
            hint="train it with the same parameters and --without the deleted modalities",
        )
    seen = {m for entry in reference.tensors.values() for m in entry.sees} & set(record.revoked)
    if seen or reference.revoked:
        raise DataError(
            f"the reference model was trained on {', '.join(sorted(seen or reference.revoked))}; it cannot serve as a "
            "reference",
            key="--reference",
            hint="a reference is trained --without the deleted modalities, not deleted from",
        )

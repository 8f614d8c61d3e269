"""Deletion method `retrain`: train again on the data without the modality, and release that model."""

import tempfile
from pathlib import Path

from mbd.plugins import (
    BACKBONES,
    DeletionOutcome,
    DeletionTarget,
    FeatureSet,
    Guarantee,
    Method,
    ModelBefore,
    Params,
    Phases,
)

ASSUMPTION = "Training is deterministic: with the same data and parameters anyone gets the same bytes."


def delete(target: DeletionTarget, before: ModelBefore, params: Params) -> DeletionOutcome:
    """Train the model that never saw the modalities of the target."""
    phases = Phases()
    with phases.phase("train"), tempfile.TemporaryDirectory() as work:
        retained = FeatureSet.open(before.data.folder, without=(*before.record.revoked, *target.modalities))
        train = BACKBONES.get(before.record.backbone).train
        trained = train(retained, params, work=Path(work), progress=False)
    return DeletionOutcome(
        record=trained.record.model_copy(
            update={
                "revoked": (*before.record.revoked, *target.modalities),
                "guarantee": Guarantee(kind="exact", epsilon=0.0, delta=0.0, assumptions=(ASSUMPTION,)),
            }
        ),
        tensors=trained.tensors,
        indices={},
        facts={},
        phases=phases,
    )


RETRAIN = Method(delete, kind="exact", reads=("train", "valid"))

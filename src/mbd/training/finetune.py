"""Fine-tuning: a joint model that has weights already is trained on, with the same objective and the same draws.

The scaling of inputs and labels is fitted anew to the data given; the best epoch is chosen on the valid split.
"""

from collections.abc import Mapping
from pathlib import Path

from mbd.features.contract import FeatureSet
from mbd.formats.model import ModelRecord
from mbd.model.joint import to_tensor_dict
from mbd.params import Params
from mbd.params.learning import JointSettings
from mbd.tensors import Array
from mbd.training.distributed import ProcessGroup
from mbd.training.joint import JointRun, as_tensors
from mbd.training.reproducibility import reproducible
from mbd.training.resume import Snapshots


def finetune(
    record: ModelRecord, tensors: Mapping[str, Array], feature_set: FeatureSet, params: Params, *, epochs: int
) -> tuple[dict[str, Array], list[dict[str, float]]]:
    """Return the weights after `epochs` epochs on `feature_set`, which has the model's modalities, and the losses."""
    if list(feature_set.modalities.items()) != list(record.modalities.items()):
        raise ValueError(f"the model takes {dict(record.modalities)}, the data has {feature_set.modalities}")
    # No snapshot is ever due: it would put weights on the disk that nobody accounts for.
    training = params.training.model_copy(update={"epochs": epochs, "snapshot_epochs": max(epochs, 1)})
    model = params.model.model_copy(update={"joint": JointSettings.model_validate(record.spec)})
    with reproducible(training.threads):
        run = JointRun(feature_set, params.model_copy(update={"model": model, "training": training}), ProcessGroup())
        weights = {name: tensors[name] for name, _ in run.network.named_parameters()}
        run.network.load_state_dict(as_tensors(weights), strict=False)
        run.finish(Snapshots(Path(), run.key), progress=False)
    return run.state.best or to_tensor_dict(run.network), run.state.history

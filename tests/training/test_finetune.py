"""Fine-tuning goes on from given weights, and is otherwise training."""

from pathlib import Path

import numpy as np
import pytest

from mbd.features.contract import FeatureSet
from mbd.params import load_params
from mbd.training.data import initial_scaling
from mbd.training.draws import initial_weights
from mbd.training.joint import finetune, train_joint
from mbd.training.trained import Trained
from tests.features.build import synthetic_set

SMALL = [f"model.joint.{width}=8" for width in ("hidden", "embedding", "property_dim")]
PARAMS = load_params(None, [*SMALL, "training.epochs=3"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> FeatureSet:
    return FeatureSet.open(synthetic_set(tmp_path_factory.mktemp("finetune") / "set"))


@pytest.fixture(scope="module")
def trained(data: FeatureSet, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_joint(data, PARAMS, work=tmp_path_factory.mktemp("work"), progress=False)


def test_from_a_fresh_start_it_is_training(data: FeatureSet, trained: Trained) -> None:
    scaling = initial_scaling(data.split("train").load(), "regression")
    shapes = {name: tensor.shape for name, tensor in trained.tensors.items() if name not in scaling}
    start = initial_weights(PARAMS.training.seed, shapes) | scaling
    tensors, history = finetune(trained.record, start, data, PARAMS, epochs=3)
    assert history == trained.history
    assert set(tensors) == set(trained.tensors)
    assert all(np.array_equal(tensors[name], trained.tensors[name]) for name in tensors)


def test_it_continues_from_the_given_weights(data: FeatureSet, trained: Trained) -> None:
    _, history = finetune(trained.record, trained.tensors, data, PARAMS, epochs=1)
    assert float(history[0]["task"]) < float(trained.history[0]["task"])


@pytest.mark.parametrize(
    "name",
    [
        *("modality.text.mean", "modality.audio.scale", "label_mean"),
        *("linear.weight", "linear.bias", "modality.audio.beside.weight"),
    ],
)
def test_scaling_and_linear_map_are_fitted_to_the_data(data: FeatureSet, trained: Trained, name: str) -> None:
    moved = {**trained.tensors, name: trained.tensors[name] + 5}
    tensors, history = finetune(trained.record, moved, data, PARAMS, epochs=1)
    assert np.array_equal(tensors[name], trained.tensors[name])
    assert history == finetune(trained.record, trained.tensors, data, PARAMS, epochs=1)[1]


def test_the_shape_is_the_models_not_that_of_the_parameters(data: FeatureSet, trained: Trained) -> None:
    other = load_params(None, ["model.joint.hidden=99"])
    tensors, _ = finetune(trained.record, trained.tensors, data, other, epochs=1)
    assert {name: t.shape for name, t in tensors.items()} == {n: t.shape for n, t in trained.tensors.items()}


def test_no_epoch_changes_nothing(data: FeatureSet, trained: Trained) -> None:
    tensors, history = finetune(trained.record, trained.tensors, data, PARAMS, epochs=0)
    assert history == []
    assert all(np.array_equal(tensors[name], trained.tensors[name]) for name in trained.tensors)


def test_nothing_is_left_on_the_disk(data: FeatureSet, trained: Trained) -> None:
    finetune(trained.record, trained.tensors, data, PARAMS.model_copy(), epochs=6)
    assert list(Path().iterdir()) == []


def test_data_with_other_modalities_is_refused(data: FeatureSet, trained: Trained) -> None:
    less = FeatureSet.open(data.folder, without=("audio",))
    with pytest.raises(ValueError, match="audio"):
        finetune(trained.record, trained.tensors, less, PARAMS, epochs=1)

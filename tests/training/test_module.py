"""Training of any module: it learns, the same inputs give the same bytes, and the record says what was built."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mbd.errors import DataError, UsageError
from mbd.evaluation.metrics import task_metrics
from mbd.features.contract import FeatureSet
from mbd.formats.features import Shape
from mbd.formats.model import ModuleSpec
from mbd.model.examples.late_fusion import LateFusion
from mbd.model.module import from_tensors
from mbd.model.predictor import Model
from mbd.steps import train as steps_train
from mbd.training.module import TERMS, ModuleRun, train_module
from mbd.training.trained import Trained
from tests.model.modules import Concatenation, Tensors
from tests.refusals import refused, refused_as_no_modality
from tests.training.build import DIMS, joint_data, small_params

LATE = "mbd.model.examples.late_fusion:LateFusion"
ADAMW = ("training.optimiser=adamw", "training.learning_rate=0.02")


class OwnLoss(LateFusion):
    """A module with a loss of its own."""

    def loss(self, outputs: Tensor, labels: Tensor, features: Tensors, available: Tensors) -> Tensor:
        return (outputs[:, 0] - labels).abs()


class NamesOfItsOwn(LateFusion):
    """A published module with `loss`, `reconstruct` and `owned` of other meanings."""

    def __init__(self, modalities: dict[str, Shape], outputs: int) -> None:
        super().__init__(modalities, outputs)
        self.reconstruct = nn.Linear(1, 1)
        self.owned = {"licence": "MIT"}

    def loss(self, predicted: Tensor, target: Tensor) -> Tensor:
        raise AssertionError("never called")


class LossOfTheBatch(OwnLoss):
    """A loss under the contract that returns one number for all rows."""

    def loss(self, outputs: Tensor, labels: Tensor, features: Tensors, available: Tensors) -> Tensor:
        return super().loss(outputs, labels, features, available).mean()


class NeedsAll(LateFusion):
    """A module that cannot do without a modality."""

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        if not available["audio"].any():
            raise IndexError("no audio")
        return super().forward(features, available)


def train(data: Path, work: Path, backbone: str, *settings: str, without: tuple[str, ...] = ()) -> Trained:
    params = small_params(f"model.backbone={backbone}", *settings)
    return train_module(FeatureSet.open(data, without=without), params, work=work, progress=False)


def model_of(trained: Trained) -> Model:
    return Model(trained.record, from_tensors(trained.record, trained.tensors))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return joint_data(tmp_path_factory.mktemp("module") / "set")


@pytest.mark.parametrize(
    "backbone",
    [
        LATE,
        "mbd.model.examples.tensor_fusion:TensorFusion",
        "mbd.model.examples.crossmodal:CrossModalTransformer",
        "tests.model.modules:Concatenation",
        "tests.training.test_module:OwnLoss",
    ],
)
def test_a_module_learns_by_our_loop(data: Path, tmp_path: Path, backbone: str) -> None:
    trained = train(data, tmp_path, backbone, "training.epochs=12", *ADAMW)
    test = FeatureSet.open(data).split("test").load()
    metrics = task_metrics("regression", test.labels, model_of(trained).predict(test.features, test.available))
    assert metrics["corr"] > 0.85
    assert set(TERMS) <= set(trained.history[0])
    assert float(trained.history[-1]["task"]) < float(trained.history[0]["task"])


@pytest.mark.parametrize("backbone", [LATE, "joint"])
def test_bfloat16_on_a_cpu_is_refused_before_anything_is_trained(data: Path, tmp_path: Path, backbone: str) -> None:
    params = small_params(f"model.backbone={backbone}", "training.device=cpu", "training.mixed_precision=true")
    with refused(UsageError, key="training.mixed_precision"):
        steps_train.run(params, data, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_classes_are_probabilities(tmp_path: Path) -> None:
    data = joint_data(tmp_path / "set", classes=3)
    trained = train(data, tmp_path, LATE, "training.epochs=10", *ADAMW)
    test = FeatureSet.open(data).split("test").load()
    probabilities = model_of(trained).predict(test.features, test.available)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert (probabilities.argmax(1) == test.labels).mean() > 0.7


def test_the_record_says_what_was_built_and_for_which_modality_a_tensor_exists(data: Path, tmp_path: Path) -> None:
    trained = train(data, tmp_path, "tests.model.modules:Concatenation", "model.options={hidden: 5}")
    spec = ModuleSpec.model_validate(trained.record.spec)
    assert spec.options == {"hidden": 5}
    assert {m: shape.size for m, shape in spec.shapes.items()} == {m: (d,) for m, d in DIMS.items()}
    tensors = trained.record.tensors
    assert tensors["norms.audio.running_mean"].belongs_to == "audio"
    assert tensors["norms.audio.num_batches_tracked"].sees == tuple(DIMS)
    assert tensors["hidden.parametrizations.weight.original1"].belongs_to is None
    assert tensors["hidden.parametrizations.weight.original1"].sees == tuple(DIMS)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_a_killed_run_ends_with_the_bytes_of_an_undisturbed_one(
    data: Path, tmp_path: Path, optimiser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossmodal, option = "mbd.model.examples.crossmodal:CrossModalTransformer", f"training.optimiser={optimiser}"
    whole = train(data, tmp_path / "whole", crossmodal, option)
    epoch = ModuleRun.epoch

    def killed(self: ModuleRun, number: int) -> dict[str, float]:
        if number == 2:
            raise KeyboardInterrupt
        return epoch(self, number)

    (tmp_path / "killed").mkdir()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ModuleRun, "epoch", killed)
        train(data, tmp_path / "killed", crossmodal, option)
    resumed = train(data, tmp_path / "killed", crossmodal, option)
    assert all(np.array_equal(array, resumed.tensors[name]) for name, array in whole.tensors.items())
    assert resumed.history == whole.history


def test_a_step_in_parts_learns_what_a_whole_step_learns(data: Path, tmp_path: Path) -> None:
    whole, parts = (train(data, tmp_path, LATE, f"training.accumulation={n}") for n in (1, 4))
    assert all(np.allclose(array, parts.tensors[name], atol=1e-4) for name, array in whole.tensors.items())


def test_a_model_trained_without_a_modality_is_smaller_and_reads_nothing_of_it(data: Path, tmp_path: Path) -> None:
    trained = train(data, tmp_path, LATE, without=("audio",))
    assert list(trained.record.modalities) == ["text", "visual"]
    assert not [name for name in trained.tensors if "audio" in name]
    assert not [name for name in trained.record.data.files if "audio" in name]


def test_of_a_fixed_shape_the_modality_is_absent_throughout(data: Path, tmp_path: Path) -> None:
    trained = train(data, tmp_path, "tests.training.test_module:fixed", without=("audio",))
    assert list(trained.record.modalities) == ["text", "visual"]
    assert "audio" in ModuleSpec.model_validate(trained.record.spec).shapes
    test = FeatureSet.open(data, without=("audio",)).split("test").load()
    assert np.isfinite(model_of(trained).predict(test.features)).all()
    with refused_as_no_modality("audio"):
        model_of(trained).predict({"audio": np.zeros((1, 4))})


def fixed(modalities: object, outputs: int) -> torch.nn.Module:
    """Return a module of fixed shape."""
    del modalities
    return Concatenation({m: Shape.vector(d) for m, d in DIMS.items()}, outputs)


def test_weights_that_do_not_fit_the_module_are_refused_with_the_tensor(data: Path, tmp_path: Path) -> None:
    trained = train(data, tmp_path, LATE, "training.epochs=1")
    wrong = {**trained.tensors, "head.weight": np.zeros((1, 3), np.float32)}
    with refused(DataError, key="head.weight"):
        from_tensors(trained.record, wrong)


def test_a_module_with_hidden_state_is_not_trained(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hidden state"):
        train(data, tmp_path, "tests.model.test_probing:Remembering")


def test_methods_of_other_meanings_are_not_called_and_a_warning_names_them(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained = train(data, tmp_path, "tests.training.test_module:NamesOfItsOwn", "training.epochs=1")
    assert trained.record.tensors["encoders.audio.0.weight"].belongs_to == "audio"
    for name in ("loss", "reconstruct", "owned"):
        assert f"NamesOfItsOwn has a `{name}` of its own" in caplog.text
    assert "`loss`" not in caplog.text.replace("NamesOfItsOwn has a `loss` of its own", "", 1)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [("LossOfTheBatch", "`loss` must return one number for each of 3 rows"), ("NeedsAll", "without audio: IndexError")],
)
def test_what_breaks_the_contract_is_refused_before_training(
    data: Path, tmp_path: Path, backbone: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        train(data, tmp_path, f"tests.training.test_module:{backbone}", "training.epochs=10000")
    assert refusal.value.hint

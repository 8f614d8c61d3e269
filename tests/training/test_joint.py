"""Training the joint backbone: it learns, for any data; the same inputs give the same bytes; errors name the place."""

import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from mbd.errors import DataError, MbdError, UsageError
from mbd.evaluation.metrics import task_metrics
from mbd.features.contract import FeatureSet
from mbd.params import Params
from mbd.tensors import file_of
from mbd.training import data as training_data
from mbd.training.joint import train_joint
from mbd.training.optimiser import rate_factor
from mbd.training.reproducibility import choose_device, reproducible
from mbd.training.trained import Trained
from tests.refusals import refused
from tests.training.build import (
    DIMS,
    backbone_of,
    joint_data,
    model_of,
    networks_alone,
    open_set,
    rewritten,
    small_params,
)


def train(data: FeatureSet | Path, work: Path, *settings: str, params: Params | None = None) -> Trained:
    feature_set = data if isinstance(data, FeatureSet) else open_set(data)
    return train_joint(feature_set, params or small_params(*settings), work=work, progress=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return joint_data(tmp_path_factory.mktemp("joint") / "set")


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(data, tmp_path_factory.mktemp("work"), "training.epochs=30")


def test_it_learns(data: Path, trained: Trained) -> None:
    test = open_set(data).split("test").load()
    metrics = task_metrics("regression", test.labels, model_of(trained).predict(test.features, test.available))
    assert metrics["corr"] > 0.9
    first, last = trained.history[0], trained.history[-1]
    for term in ("task", "reconstruction", "property", "contrastive"):
        assert float(last[term]) < float(first[term]), term


def test_rows_that_are_read_from_files_batch_by_batch_give_the_same_bytes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = train(data, tmp_path, "training.epochs=2").tensors
    monkeypatch.setattr(training_data, "_IN_MEMORY", 0)
    assert file_of(training_data.rows_with_something(open_set(data), "train").features["text"])
    from_files = train(data, tmp_path, "training.epochs=2").tensors
    assert all(from_files[name].tobytes() == tensor.tobytes() for name, tensor in in_memory.items())


def test_the_epoch_of_which_the_networks_are_best_on_valid_is_kept(data: Path, trained: Trained) -> None:
    valid = open_set(data).split("valid").load()
    scores = networks_alone(trained.record, trained.tensors).predict(valid.features, valid.available)
    errors = torch.from_numpy(np.abs(scores - valid.labels))
    assert float(errors.mean()) == min(float(row["valid_mae"]) for row in trained.history)


def test_generators_know_something_of_what_is_missing(data: Path, trained: Trained) -> None:
    test = open_set(data).split("test").load()
    generated = backbone_of(trained).reconstruct(test.features, test.available)
    for m in DIMS:
        there = test.available[m]
        truth = test.features[m][there]
        error = ((generated[m][there] - truth) ** 2).sum() / ((truth - truth.mean(0)) ** 2).sum()
        assert error < 0.8, m


def test_property_embeddings_come_near_the_invariant_mean(data: Path, trained: Trained) -> None:
    rows, inside = open_set(data).split("train").load(), backbone_of(trained)
    features, available = inside.to_tensors(rows.features, rows.available)
    inputs = inside.network.standardise(features, available)
    for m, path in inside.network.modality.items():
        mean = path.decompose(inputs[m][available[m]])[1].mean(0)
        assert ((path.property[0] - mean) ** 2).sum() < 0.2


@pytest.mark.parametrize("dims", [{"a": 3, "b": 5}, DIMS, {"one": 2, "two": 9, "three": 4, "four": 1}], ids=len)
@pytest.mark.parametrize("classes", [0, 3])
def test_any_modalities_and_both_tasks(tmp_path: Path, dims: dict[str, int], classes: int) -> None:
    data = open_set(joint_data(tmp_path / "set", dims=dims, classes=classes))
    trained = train(data, tmp_path, "training.epochs=12")
    test = data.split("test").load()
    metrics = task_metrics(data.manifest.task, test.labels, model_of(trained).predict(test.features, test.available))
    assert metrics["ua" if classes else "acc2"] > 60


@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("on", list(product(("true", "false"), repeat=3)), ids="-".join)
def test_every_combination_of_ablations_trains(tmp_path: Path, on: tuple[str, str, str], classes: int) -> None:
    names = ("property_pathway", "reconstruction", "fusion")
    settings = [f"model.joint.{name}={value}" for name, value in zip(names, on, strict=True)]
    trained = train(joint_data(tmp_path / "set", classes=classes), tmp_path, "training.epochs=2", *settings)
    has = {name: any(f".{name}" in tensor for tensor in trained.tensors) for name in ("property", "generator")}
    assert has == {"property": on[0] == "true", "generator": on[1] == "true"}
    assert ("fusion.hidden.weight" in trained.tensors) == (on[2] == "true")


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(data: Path, tmp_path: Path) -> None:
    one, again, other = (train(data, tmp_path / str(n), f"training.seed={s}") for n, s in enumerate((5, 5, 6)))
    assert one.history == again.history
    for name, tensor in one.tensors.items():
        assert tensor.tobytes() == again.tensors[name].tobytes(), name
    assert any(tensor.tobytes() != other.tensors[name].tobytes() for name, tensor in one.tensors.items())


def test_the_scaling_of_a_modality_depends_on_nothing_else(tmp_path: Path) -> None:
    whole = open_set(joint_data(tmp_path / "set"))
    one = train(whole, tmp_path / "a", "training.epochs=1")
    other = train(open_set(tmp_path / "set", "audio"), tmp_path / "b", "training.epochs=1")
    same = {name for name in other.tensors if one.tensors[name].tobytes() == other.tensors[name].tobytes()}
    scaled = {f"modality.{m}.{part}" for m in ("text", "visual") for part in ("mean", "scale")}
    assert same >= scaled
    rest = {n for n in one.tensors if "audio" in one.record.tensors[n].sees and n in other.tensors}
    assert not same & rest


def test_the_record_names_the_data_that_was_used(data: Path, tmp_path: Path) -> None:
    record = train(open_set(data, "audio"), tmp_path, "training.epochs=1").record
    assert record.modalities == {"text": 7, "visual": 5}
    assert {Path(file).name for file in record.data.files} == {
        "_rows.safetensors",
        "text.safetensors",
        "visual.safetensors",
    }
    assert not any("test" in file for file in record.data.files)


def test_one_modality_can_be_all_there_is(tmp_path: Path) -> None:
    data = open_set(joint_data(tmp_path / "set", dims={"a": 3, "b": 5}, missing=0), "b")
    trained = train(data, tmp_path, "training.epochs=10")
    test = data.split("test").load()
    assert task_metrics("regression", test.labels, model_of(trained).predict(test.features))["corr"] > 0.6


def test_rows_that_have_nothing_left_are_passed_over(tmp_path: Path) -> None:
    folder = joint_data(tmp_path / "set", missing=0.6)
    data = open_set(folder, "text")
    assert not np.any(list(data.split("train").available.values()), axis=0).all()
    trained = train(data, tmp_path, "training.epochs=2")
    assert np.isfinite([float(row["total"]) for row in trained.history]).all()


def test_a_constant_modality_is_zero_once_standardised(tmp_path: Path) -> None:
    data = open_set(joint_data(tmp_path / "set", missing=0))
    rows = {split: data.split(split).load() for split in ("train", "valid", "test")}
    for part in rows.values():
        part.features["audio"][:] = 0
    flat = rewritten(tmp_path / "flat", rows)
    trained = train(flat, tmp_path, "training.epochs=8")
    assert (trained.tensors["modality.audio.scale"] == 1).all()
    test, model = rows["test"], model_of(trained)
    assert task_metrics("regression", test.labels, model.predict(test.features))["corr"] > 0.8


def test_a_modality_that_no_row_has_adds_nothing(tmp_path: Path) -> None:
    data = open_set(joint_data(tmp_path / "set", missing=0))
    rows = {split: data.split(split).load() for split in ("train", "valid", "test")}
    for part in rows.values():
        part.available["audio"][:] = False
    trained = train(rewritten(tmp_path / "never", rows), tmp_path, "training.epochs=2")
    assert np.isfinite([float(value) for row in trained.history for value in row.values()]).all()


@pytest.mark.parametrize("classes", [1, 3])
def test_of_one_class_only_the_model_learns_that_class(tmp_path: Path, classes: int) -> None:
    data = open_set(joint_data(tmp_path / "set", classes=classes))
    rows = {split: data.split(split).load() for split in ("train", "valid", "test")}
    for part in rows.values():
        part.labels[:] = 0
    trained = train(rewritten(tmp_path / "one", rows, classes=classes), tmp_path, "training.epochs=15")
    test = rows["test"]
    probabilities = model_of(trained).predict(test.features, test.available)
    assert probabilities.shape == (len(test), classes)
    assert (probabilities.argmax(1) == 0).all()


def test_of_equal_labels_the_model_learns_that_number(tmp_path: Path) -> None:
    data = open_set(joint_data(tmp_path / "set"))
    rows = {split: data.split(split).load() for split in ("train", "valid", "test")}
    for part in rows.values():
        part.labels[:] = 1.5
    trained = train(rewritten(tmp_path / "flat", rows), tmp_path, "training.epochs=20")
    np.testing.assert_allclose(model_of(trained).predict(rows["test"].features), 1.5, atol=0.5)


def test_a_loss_that_is_not_a_number_says_where_and_what_to_try(data: Path, tmp_path: Path) -> None:
    with pytest.raises(MbdError) as error:
        train(data, tmp_path, "training.learning_rate=1e30", "training.warmup_steps=0")
    assert "is not a finite number" in error.value.problem
    assert "epoch 0" in str(error.value.key)
    assert "training.learning_rate" in str(error.value.hint)


def test_without_a_gpu_one_cannot_be_asked_for() -> None:
    if torch.cuda.is_available():
        assert choose_device("cuda").type == "cuda"
    else:
        with refused(UsageError, key="training.device"):
            choose_device("cuda")
        assert choose_device("auto").type == "cpu"


def test_settings_of_torch_are_as_they_were_afterwards() -> None:
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    with reproducible(3):
        assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == (3, True)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()) == before


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_the_compiler_of_torch_is_not_imported(
    data: Path, tmp_path: Path, optimiser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("torch._dynamo", "torch._inductor"):
        monkeypatch.setitem(sys.modules, name, None)  # to import it is an error
    assert train(data, tmp_path, f"training.optimiser={optimiser}", "training.epochs=1").history


def test_the_rate_warms_up_and_falls_to_zero() -> None:
    factors = [rate_factor(step, 100, 10) for step in range(100)]
    assert factors[:11] == sorted(factors[:11])
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[10] == 1
    assert 0 < factors[-1] < 0.01


def test_data_without_rows_to_train_on_is_refused(tmp_path: Path) -> None:
    data = open_set(joint_data(tmp_path / "set"))
    rows = {split: data.split(split).load() for split in ("train", "valid", "test")}
    rows["train"].available["text"][:] = False
    rows["train"].available["visual"][:] = False
    folder = rewritten(tmp_path / "empty", rows)
    with refused(DataError, key="train", file=folder):
        train(open_set(folder, "audio"), tmp_path)

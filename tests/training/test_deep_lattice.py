"""The lattice of networks: what a deletion leaves is what training without the modality gives, bit for bit."""

import os
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor, nn

import mbd
from mbd import tombstones
from mbd.background import process_map
from mbd.deletion import exact
from mbd.deletion.methods import ModelBefore
from mbd.errors import DataError, UsageError
from mbd.evaluation.metrics import task_metrics
from mbd.features.contract import FeatureSet
from mbd.formats.deletion import DeletionTarget
from mbd.formats.features import Shape
from mbd.model.checkpoint import save_model
from mbd.model.lattice import chosen_tags, from_tensors
from mbd.model.predictor import Model
from mbd.params import Params, load_params
from mbd.training.lattice import train_lattice
from mbd.training.module import ModuleRun
from mbd.training.trained import Trained
from tests.features.build import synthetic_set
from tests.model.modules import Tensors
from tests.refusals import refused
from tests.training.build import rewritten

NETWORKS = (
    "model.backbone=lattice",
    "model.lattice.member=mbd.model.examples.crossmodal:CrossModalTransformer",
    "model.lattice.options={width: 8, heads: 2, layers: 1}",
    "model.lattice.folds=2",
    "training.epochs=1",
    "training.optimiser=adamw",
    "training.learning_rate=0.01",
)
MODALITIES = ("text", "audio", "visual")


class AlwaysThree(nn.Module):
    """A network of one shape, whatever it is built for."""

    def __init__(self, modalities: dict[str, Shape], outputs: int) -> None:
        super().__init__()
        self.head = nn.Linear(1, outputs)

    def forward(self, features: Tensors, available: Tensors) -> Tensor:
        scores: Tensor = self.head(next(iter(features.values()))[:, :1])
        return scores


def params_of(*settings: str) -> Params:
    return load_params(None, [*NETWORKS, *settings])


def train(data: Path, work: Path, *settings: str, without: tuple[str, ...] = ()) -> Trained:
    return train_lattice(FeatureSet.open(data, without=without), params_of(*settings), work=work, progress=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("deep") / "set")


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(data, tmp_path_factory.mktemp("work"))


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("modality", MODALITIES)
def test_deletion_is_bit_identical_to_training_without_the_modality(
    data: Path, whole: Trained, tmp_path: Path, modality: str, processes: int
) -> None:
    before = ModelBefore(whole.record, whole.tensors, FeatureSet.open(data))
    outcome = exact.delete(DeletionTarget(modalities=(modality,)), before, params_of())
    reference = train(data, tmp_path / "work", f"training.processes={processes}", without=(modality,))
    digests = set()
    for name, record, tensors in (
        ("deleted", outcome.record, outcome.tensors),
        ("never", reference.record, reference.tensors),
    ):
        (tmp_path / name).mkdir()
        digests.add(save_model(tmp_path / name, record, tensors).sha256)
    assert len(digests) == 1
    assert outcome.record.spec == reference.record.spec
    assert outcome.record.tensors == reference.record.tensors


def test_processes_refuse_the_purged_files_that_this_one_refuses() -> None:
    with tombstones.used(lambda: frozenset({"a" * 64})), process_map(2) as mapped:
        found = list(mapped(tombstones_listed, range(2)))
    assert {listed for _, listed in found} == {frozenset({"a" * 64})}
    assert os.getpid() not in {process for process, _ in found}


def tombstones_listed(_: int) -> tuple[int, frozenset[str]]:
    return os.getpid(), tombstones.listed()


def test_there_is_a_network_for_every_set_and_it_has_seen_nothing_else(whole: Trained) -> None:
    tags = {name.split(".")[1] for name in whole.tensors}
    assert len(tags) == 7
    for name, entry in whole.record.tensors.items():
        assert entry.sees == tuple(name.split(".")[1].split("+"))


def test_networks_answer_for_rows_with_any_modalities(data: Path, tmp_path: Path) -> None:
    trained = train(data, tmp_path, "training.epochs=8", "model.lattice.tags=1")
    model, test = (
        Model(trained.record, from_tensors(trained.record, trained.tensors)),
        FeatureSet.open(data).split("test").load(),
    )
    found = task_metrics("regression", test.labels, model.predict(test.features, test.available))
    assert found["corr"] > 0.3
    assert np.isfinite(model.predict({"audio": test.features["audio"]})).all()


def test_networks_take_sequences(tmp_path: Path) -> None:
    frames = "features.source.synthetic.frames={text: 4, audio: 5, visual: 3}"
    data = synthetic_set(tmp_path / "set", "features.source.preset=sequences", frames)
    whole, reference = (
        train(data, tmp_path / "work", "model.lattice.tags=1", without=without) for without in ((), ("audio",))
    )
    assert all(np.array_equal(tensor, whole.tensors[name]) for name, tensor in reference.tensors.items())
    test = FeatureSet.open(data).split("test").load()
    model = Model(whole.record, from_tensors(whole.record, whole.tensors))
    assert np.isfinite(model.predict(test.inputs(), test.available)).all()


def test_classes_have_probabilities(tmp_path: Path) -> None:
    data = synthetic_set(tmp_path / "set", "features.source.synthetic.classes=3")
    trained = train(data, tmp_path / "work", "model.lattice.tags=[text+audio]")
    model = Model(trained.record, from_tensors(trained.record, trained.tensors))
    probabilities = model.predict(FeatureSet.open(data).split("test").load().features)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)


def test_a_subject_is_forgotten_as_if_it_had_never_been_recorded(data: Path, tmp_path: Path) -> None:
    trained = train(data, tmp_path / "work", "model.lattice.tags=1")
    rows = FeatureSet.open(data).split("train").load()
    request = DeletionTarget(modalities=("audio",), subjects=(str(rows.groups[0]),))
    outcome = exact.delete(request, ModelBefore(trained.record, trained.tensors, FeatureSet.open(data)), params_of())
    moved = {n for n, t in outcome.tensors.items() if not np.array_equal(t, trained.tensors[n])}
    assert {name.split(".")[1] for name in moved} == {"audio"}
    assert int(outcome.tensors["module.audio.rows"]) < int(trained.tensors["module.audio.rows"])


def test_a_killed_run_trains_only_what_is_left(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = train(data, tmp_path, "model.lattice.tags=1")
    monkeypatch.setattr(ModuleRun, "epoch", never)
    again = train(data, tmp_path, "model.lattice.tags=1")
    assert all(np.array_equal(tensor, again.tensors[name]) for name, tensor in trained.tensors.items())


def never(self: ModuleRun, number: int) -> dict[str, float]:
    raise AssertionError(number)


def test_the_sets_that_get_a_network_can_be_bounded() -> None:
    def count(setting: str, modalities: str) -> int:
        return len(chosen_tags(params_of(f"model.lattice.tags={setting}").model.lattice, modalities))

    assert count("all", "abcd") == 15
    assert count("2", "abcd") == 10
    assert count("leave-one-out", "abcd") == 4 + 4 + 1
    assert count("[b+a, a+c+d]", "abcd") == 6


@pytest.mark.parametrize("rule", ["leave-one-out", "[text+audio, audio+visual]"])
def test_a_bounded_lattice_is_deleted_from_as_if_trained_without(data: Path, tmp_path: Path, rule: str) -> None:
    closed = ["model.backbone=lattice", "model.lattice.landmarks=0", f"model.lattice.tags={rule}"]
    params = load_params(None, closed)
    full, reference = (
        train_lattice(FeatureSet.open(data, without=without), params, work=tmp_path, progress=False)
        for without in ((), ("visual",))
    )
    before = ModelBefore(full.record, full.tensors, FeatureSet.open(data))
    outcome = exact.delete(DeletionTarget(modalities=("visual",)), before, params)
    assert outcome.record.tensors == reference.record.tensors
    assert outcome.record.spec == reference.record.spec
    assert all(np.array_equal(t, outcome.tensors[n]) for n, t in reference.tensors.items())


@pytest.mark.parametrize(
    ("settings", "modalities", "count"),
    [(NETWORKS, 8, "255 modules, each trained 3 times"), (("model.backbone=lattice",), 12, "4,095 modules")],
)
def test_a_lattice_that_would_not_finish_is_refused_with_a_bound_that_fits(
    settings: tuple[str, ...], modalities: int, count: str
) -> None:
    names = [f"m{number}" for number in range(modalities)]
    with pytest.raises(UsageError, match=count) as refusal:
        chosen_tags(load_params(None, list(settings)).model.lattice, names)
    bound = str(refusal.value.hint).split("model.lattice.tags=")[1][0]
    assert chosen_tags(load_params(None, [*settings, f"model.lattice.tags={bound}"]).model.lattice, names)


@pytest.mark.parametrize(
    ("rule", "modalities", "most", "bound"),
    [
        ("leave-one-out", 64, "129 modules, each trained", "1"),
        ("[" + ", ".join(f"m{a}+m{b}" for a in range(16) for b in range(a)) + "]", 16, "136 modules", "1"),
    ],
    ids=["leave-one-out", "a list"],
)
def test_other_rules_are_bounded_in_number_too(rule: str, modalities: int, most: str, bound: str) -> None:
    names = [f"m{number}" for number in range(modalities)]
    with refused(UsageError, match=most, hint=f"model.lattice.tags={bound} ("):
        chosen_tags(params_of(f"model.lattice.tags={rule}").model.lattice, names)
    assert len(chosen_tags(params_of(f"model.lattice.tags={bound}").model.lattice, names)) == modalities


def test_more_modalities_than_modules_are_refused_with_how_many_to_leave_out() -> None:
    with refused(UsageError, key="model.lattice.tags", value="1", hint="leave 3 or more modalities out"):
        chosen_tags(params_of("model.lattice.tags=1").model.lattice, [f"m{number}" for number in range(130)])


def test_many_modules_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", logger="mbd"):
        chosen_tags(params_of().model.lattice, "abcdef")
    assert "63 modules" in caplog.text


def test_twelve_modalities_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    dims = "{" + ", ".join(f"m{number}: 2" for number in range(12)) + "}"
    data = synthetic_set(tmp_path / "set", f"features.source.synthetic.dims={dims}")
    with refused(UsageError, key="model.lattice.tags", value="all"):
        mbd.train(data, tmp_path / "model", params={"model.backbone": "lattice"})
    assert not (tmp_path / "model").exists()


def test_a_factory_that_cannot_be_a_member_is_refused(data: Path, tmp_path: Path) -> None:
    with refused(UsageError, match="with and without", key="model.lattice.member"):
        train(
            data,
            tmp_path,
            "model.lattice.member=tests.training.test_deep_lattice:AlwaysThree",
            "model.lattice.options={}",
        )
    with refused(UsageError, match="cannot be imported", key="model.lattice.member"):
        train(data, tmp_path, "model.lattice.member=nowhere.at_all:Factory")
    with refused(UsageError, key="model.lattice.tags", value="text+smell"):
        train(data, tmp_path, "model.lattice.tags=[text+smell]")


def test_a_modality_that_too_few_rows_have_is_named(data: Path, tmp_path: Path) -> None:
    whole_set = FeatureSet.open(data)
    splits = {name: whole_set.split(name).load() for name in ("train", "valid", "test")}
    splits["valid"].available["audio"][:] = False

    with refused(DataError, key="audio", value="160 train rows, 0 valid rows"):
        train(rewritten(tmp_path / "set", splits), tmp_path / "work")

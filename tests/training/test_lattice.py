"""The lattice: what a module may see, what is left without a modality, and that it predicts."""

import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from mbd import blocks, tensors
from mbd.errors import DataError, UsageError
from mbd.evaluation.metrics import classification_metrics, regression_metrics, task_metrics
from mbd.evaluation.ridge import PatternRidge
from mbd.features.contract import FeatureSet
from mbd.features.rows import Rows
from mbd.formats.model import module_tensors
from mbd.model.checkpoint import load_model, save_model
from mbd.model.coordinates import softmax
from mbd.model.lattice import LatticeBackbone, from_tensors, read_projection, tags
from mbd.model.predictor import Model, load
from mbd.params import Params, load_params
from mbd.steps import features
from mbd.steps.train import test_metrics as step_metrics
from mbd.training.lattice import FittedModalities, ridge, train_lattice, train_modules
from mbd.training.lattice.module import _median_shift
from mbd.training.lattice.ridge import assign_folds
from mbd.training.trained import Trained
from tests.features.build import npz_arrays, small_collection, small_rows, synthetic_set, write_npz
from tests.refusals import refused

SKEWED = ("features.source.synthetic.classes=7", "features.source.synthetic.skew=0.8")
WITHOUT = [c for size in (1, 2) for c in combinations(("text", "audio", "visual"), size)]
SMALL = ["model.backbone=lattice", "model.lattice.components=6", "model.lattice.landmarks=16"]
PARAMS = load_params(None, SMALL)


def train(folder: Path, *without: str, params: Params = PARAMS) -> Trained:
    return train_lattice(FeatureSet.open(folder, without=without), params, work=folder, progress=False)


def model_of(trained: Trained) -> Model:
    return Model(trained.record, from_tensors(trained.record, trained.tensors))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("lattice") / "set")


@pytest.fixture(scope="module")
def whole(data: Path) -> Trained:
    return train(data)


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_set(tmp_path_factory.mktemp("classes") / "set", *SKEWED)


@pytest.fixture(scope="module")
def whole_of_classes(classes: Path) -> Trained:
    return train(classes)


def test_there_is_a_module_for_every_set(whole: Trained) -> None:
    assert len(tags("abcd")) == 15
    modules = {name.split(".")[1] for name in whole.tensors if name.startswith("module.")}
    assert modules == {"+".join(tag) for tag in tags(["text", "audio", "visual"])}


@pytest.mark.parametrize("task", ["regression", "classes"])
def test_coordinates_in_files_give_the_same_bytes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    folder, trained = ("data", "whole") if task == "regression" else ("classes", "whole_of_classes")
    monkeypatch.setattr(tensors, "_SCRATCH_AT_LEAST", 1)
    assert_same_bytes(train(request.getfixturevalue(folder)), request.getfixturevalue(trained))


def test_other_blocks_of_rows_give_a_model_that_is_close(
    data: Path, whole: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_NUMBERS", 1)
    monkeypatch.setattr(blocks, "_FEWEST_ROWS", 64)
    for name, tensor in train(data).tensors.items():
        np.testing.assert_allclose(tensor, whole.tensors[name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_rows_in_memory_with_gaps_are_summed_for_all_tags_as_for_each(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = with_gaps(FeatureSet.open(data).split("train").load())
    together = train_modules(rows, PARAMS.model.lattice, seed=0, classes=0)
    monkeypatch.setattr(ridge, "_MOST_BYTES", 0)
    each = train_modules(rows, PARAMS.model.lattice, seed=0, classes=0)
    assert together[0].keys() == each[0].keys()
    assert all(tensor.tobytes() == each[0][name].tobytes() for name, tensor in together[0].items())
    assert together[1:] == each[1:]


def with_gaps(rows: Rows) -> Rows:
    place = np.arange(len(rows))
    return replace(rows, available={"text": place % 5 != 0, "audio": place % 7 != 1, "visual": place % 3 != 2})


def assert_same_bytes(found: Trained, expected: Trained) -> None:
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensor in found.tensors.items():
        assert tensor.tobytes() == expected.tensors[name].tobytes(), name
    assert found.history == expected.history


@pytest.mark.parametrize("task", ["regression", "classes"])
@pytest.mark.parametrize("without", WITHOUT, ids="+".join)
def test_training_without_a_modality_gives_the_same_bytes_for_all_that_is_left(
    request: pytest.FixtureRequest, task: str, without: tuple[str, ...]
) -> None:
    folder, trained = ("data", "whole") if task == "regression" else ("classes", "whole_of_classes")
    whole = request.getfixturevalue(trained)
    never_exposed = train(request.getfixturevalue(folder), *without)
    left = {n: t for n, t in whole.tensors.items() if not set(whole.record.tensors[n].sees) & set(without)}
    assert left.keys() == never_exposed.tensors.keys()
    for name, tensor in left.items():
        assert tensor.tobytes() == never_exposed.tensors[name].tobytes(), name


def test_what_was_fitted_to_other_modalities_need_not_be_fitted_again(tmp_path: Path) -> None:
    """Classes, and rows with gaps: when some of visual goes, only modules with visual are trained again."""
    rows = FeatureSet.open(synthetic_set(tmp_path / "set", "features.source.synthetic.classes=3")).split("train").load()
    available = with_gaps(rows).available
    fewer = {**available, "visual": available["visual"] & (np.arange(len(rows)) > 20)}
    spec = PARAMS.model.lattice
    before, after = (
        train_modules(replace(rows, available=bits), spec, seed=0, classes=3)[0] for bits in (available, fewer)
    )
    fitted = FittedModalities.in_model(before, ["text", "audio"])
    again = train_modules(replace(rows, available=fewer), spec, seed=0, classes=3, only="visual", fitted=fitted)[0]
    assert 0 < len(again) < len(before)
    assert (before | again).keys() == after.keys()
    for name, tensor in (before | again).items():
        assert tensor.tobytes() == after[name].tobytes(), name


def test_coordinates_of_a_row_do_not_depend_on_its_company(data: Path, whole: Trained) -> None:
    projection = read_projection(whole.tensors, "text")
    rows = FeatureSet.open(data).split("test").load().features["text"]
    alone = np.vstack([projection(row[None]) for row in rows])
    assert alone.tobytes() == projection(rows).tobytes() == projection(rows[::-1])[::-1].tobytes()


def test_one_thread_or_more_give_the_same_bytes(data: Path, classes: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.training.test_lattice import train\n"
        "from mbd.model.checkpoint import save_model\n"
        "for number, data in enumerate(sys.argv[2:]):\n"
        "    out = Path(sys.argv[1], str(number)); out.mkdir(parents=True); t = train(Path(data))\n"
        "    print(save_model(out, t.record, t.tensors).sha256)\n"
    )
    digests = set()
    for threads in ("1", "2", "4"):
        repository = Path(__file__).parents[2]
        limits = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        environment = {**limits, "PATH": "", "PYTHONPATH": str(repository / "src")}
        command = [sys.executable, "-c", script, str(tmp_path / threads), str(data), str(classes)]
        digests.add(subprocess.check_output(command, env=environment, text=True, cwd=repository))
    assert len(digests) == 1


def test_every_tensor_says_what_it_has_seen(whole: Trained) -> None:
    for name, record in whole.record.tensors.items():
        kind, of = name.split(".")[:2]
        assert record.sees == tuple(of.split("+")), name
        assert kind in {"module", "projection"}


def test_a_value_of_a_modality_moves_nothing_that_has_not_seen_it(data: Path, whole: Trained, tmp_path: Path) -> None:
    changed = synthetic_set(tmp_path / "set")
    file = changed / "splits/train/audio.safetensors"
    content = bytearray(file.read_bytes())
    content[1000:1400] = bytes(400)
    file.write_bytes(content)
    other = train(changed)
    moved = {n for n, t in other.tensors.items() if t.tobytes() != whole.tensors[n].tobytes()}
    assert moved
    assert all("audio" in whole.record.tensors[name].sees for name in moved)


def test_more_modalities_help_and_chance_is_beaten(tmp_path: Path) -> None:
    dims = "features.source.synthetic.dims={text: 40, audio: 20, visual: 30}"
    rows = "features.source.synthetic.rows={train: 600, valid: 20, test: 400}"
    folder = synthetic_set(tmp_path / "set", dims, rows)
    model, test = model_of(train(folder)), FeatureSet.open(folder).split("test").load()

    def acc2(*shown: str) -> float:
        return regression_metrics(test.labels, model.predict({m: test.features[m] for m in shown}))["acc2"]

    assert acc2("audio", "text", "visual") > acc2("text") > acc2("audio") + 5
    assert acc2("audio") > 57


def skewed_errors(rows: Rows) -> Rows:
    """The rows with labels whose noise is far above the median as often as a little below."""
    noise = np.random.default_rng(0).exponential(2, len(rows)).astype(np.float32)
    return replace(rows, labels=rows.labels + noise)


def test_the_median_of_errors_is_centred_where_they_are_skewed(tmp_path: Path) -> None:
    rows = "features.source.synthetic.rows={train: 900, valid: 20, test: 1500, calibration: 20}"
    data = FeatureSet.open(synthetic_set(tmp_path / "set", rows))
    train_rows, test = (skewed_errors(data.split(split).load()) for split in ("train", "test"))
    found = {}
    for centre in ("mean", "median"):
        spec = PARAMS.model.lattice.model_copy(update={"centre": centre})
        tensors, _, report = train_modules(train_rows, spec, seed=0, classes=0)
        record = train(data.folder).record
        outputs = Model(record, from_tensors(record, tensors)).predict(test.features)
        found[centre] = regression_metrics(test.labels, outputs), report
    assert found["median"][0]["mae"] < 0.97 * found["mean"][0]["mae"]
    assert found["median"][0]["corr"] == pytest.approx(found["mean"][0]["corr"], abs=0.01)
    errors = {centre: [float(line["rmse"]) for line in report] for centre, (_, report) in found.items()}
    assert np.all(np.array(errors["median"]) > errors["mean"])


def test_a_median_that_could_be_chance_moves_nothing() -> None:
    folds = np.arange(500) % 5
    errors = np.random.default_rng(1).standard_normal((500, 1))
    assert abs(_median_shift(errors, folds)) < 0.03
    assert 0.8 < _median_shift(errors + 1, folds) < 1.05
    assert _median_shift(errors - np.median(errors) + 0.01, folds) == 0


def test_valid_rows_can_be_trained_on(data: Path) -> None:
    both = load_params(None, [*SMALL, "model.lattice.splits=train+valid"])
    found = FeatureSet.open(data)
    trained = train(data, params=both)
    assert trained.tensors["module.text.rows"] == len(found.split("train")) + len(found.split("valid"))
    without = train(data, "audio", params=both)
    for name, tensor in without.tensors.items():
        assert tensor.tobytes() == trained.tensors[name].tobytes(), name
    assert {"valid", "test"} - step_metrics(model_of(trained), found).keys() == {"valid"}
    with pytest.raises(UsageError, match="networks choose their epoch by valid rows"):
        load_params(None, ["model.lattice.splits=train+valid", "model.lattice.member=a.b:C"])


def test_classes_have_probabilities(tmp_path: Path) -> None:
    folder = synthetic_set(tmp_path / "set", "features.source.synthetic.classes=3")
    model, test = model_of(train(folder)), FeatureSet.open(folder).split("test").load()
    probabilities = model.predict(test.features)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert classification_metrics(test.labels, probabilities.argmax(1))["wa"] > 45


def test_the_common_class_is_not_answered_more_often_than_it_is_true(tmp_path: Path) -> None:
    """Squared loss on skewed classes answers the most frequent one; the logistic member and the discount do not."""
    rows = "features.source.synthetic.rows={train: 900, valid: 20, test: 1500, calibration: 20}"
    folder = synthetic_set(tmp_path / "set", *SKEWED, rows)
    trained = train(folder, params=load_params(None, ["model.backbone=lattice", "model.lattice.landmarks=64"]))
    model, test = model_of(trained), FeatureSet.open(folder).split("test").load()
    ridge = PatternRidge(FeatureSet.open(folder).split("train").load(), 7)
    ours, theirs = model.predict(test.features), ridge.predict(test.features)
    found, beside = (task_metrics("classification", test.labels, outputs) for outputs in (ours, theirs))
    assert all(found[metric] > beside[metric] + 3 for metric in ("wa", "ua", "f1"))
    assert found["ece"] < 5
    true, answered = (float((labels == 0).mean()) for labels in (test.labels, ours.argmax(1)))
    assert abs(answered - true) < 0.06 < (theirs.argmax(1) == 0).mean() - true


def test_landmarks_are_doubled_where_that_pays_and_the_other_modules_keep_their_bytes(tmp_path: Path) -> None:
    sizes = {"train": 600, "valid": 20, "test": 20}
    arrays = npz_arrays(replace(small_collection(), splits={split: small_rows(split, n) for split, n in sizes.items()}))
    for split in sizes:
        wave = np.sin(2 * arrays[f"{split}_audio"][:, :2])  # no line fits it, nor do few bumps
        arrays[f"{split}_labels"] = 3 * np.prod(wave, axis=1)
    file = write_npz(tmp_path / "d.npz", arrays)
    settings = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.size=0"]
    features.run(load_params(None, settings), tmp_path / "set")
    params = load_params(None, [*SMALL, "model.lattice.lengths=[0.5,1]"])
    trained = train(tmp_path / "set", params=params)
    modules = module_tensors(trained.record.modalities, trained.tensors)
    assert [len(modules[m,]["kernel.weights"]) for m in ("audio", "text", "visual")] == [128, 16, 16]
    assert modules["audio",]["landmarks.audio"].shape == (128, 3)
    left = train(tmp_path / "set", "text", params=params).tensors
    assert all(tensor.tobytes() == trained.tensors[name].tobytes() for name, tensor in left.items())


@pytest.mark.parametrize("dims", ["{a: 3, b: 5}", "{text: 4, audio: 3, visual: 2, pulse: 9}"])
def test_two_or_four_modalities_of_any_size(tmp_path: Path, dims: str) -> None:
    folder = synthetic_set(tmp_path / "set", f"features.source.synthetic.dims={dims}")
    trained = train(folder)
    test = FeatureSet.open(folder).split("test").load()
    assert np.isfinite(model_of(trained).predict(test.features)).all()


def test_each_row_is_scored_by_what_it_has(data: Path, whole: Trained) -> None:
    model, test = model_of(whole), FeatureSet.open(data).split("test").load()
    even = np.arange(len(test)) % 2 == 0
    mixed = model.predict(test.features, {"audio": even})
    np.testing.assert_allclose(mixed[even], model.predict(test.features)[even], rtol=1e-5, atol=1e-5)
    without = {m: x for m, x in test.features.items() if m != "audio"}
    np.testing.assert_allclose(mixed[~even], model.predict(without)[~even], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("task", ["regression", "classes"])
@pytest.mark.parametrize("shown", [("audio",), ("audio", "text"), ("audio", "text", "visual")], ids="+".join)
def test_a_prediction_is_that_of_the_modules_one_by_one(
    request: pytest.FixtureRequest, task: str, shown: tuple[str, ...]
) -> None:
    folder, trained = ("data", "whole") if task == "regression" else ("classes", "whole_of_classes")
    model = model_of(request.getfixturevalue(trained))
    test = FeatureSet.open(request.getfixturevalue(folder)).split("test").load()
    backbone = model.backbone
    assert isinstance(backbone, LatticeBackbone)
    everything = {m: np.ones(len(test), bool) for m in backbone.modalities}
    inside = backbone.activations(test.features, everything)
    expected = sum(
        weight * (softmax(scores) if task == "classes" else scores)
        for tag, weight in backbone.weights(shown).items()
        for scores in [inside[f"module.{'+'.join(tag)}.scores"]]
    )
    found = model.predict({m: test.features[m] for m in shown})
    np.testing.assert_allclose(found.reshape(len(test), -1), expected, rtol=1e-6, atol=1e-6)


def test_large_numbers_of_rows_are_predicted_as_single_ones_are(classes: Path, whole_of_classes: Trained) -> None:
    model, test = model_of(whole_of_classes), FeatureSet.open(classes).split("test").load()
    many = {m: np.resize(x, (20_000, x.shape[1])) for m, x in test.features.items()}
    alone = np.vstack([model.predict({m: x[row : row + 1] for m, x in test.features.items()}) for row in range(9)])
    found = model.predict(many)
    np.testing.assert_allclose(found[:9], alone, atol=1e-5)
    np.testing.assert_allclose(found[len(test) : 2 * len(test)], found[: len(test)], atol=1e-5)
    in_doubles = model.predict({m: x.astype(np.float64) for m, x in test.features.items()})
    np.testing.assert_allclose(in_doubles, found[: len(test)], atol=1e-5)


def test_a_saved_model_predicts_as_the_trained_one(data: Path, whole: Trained, tmp_path: Path) -> None:
    save_model(tmp_path, whole.record, whole.tensors)
    test = FeatureSet.open(data).split("test").load()
    np.testing.assert_array_equal(load(tmp_path).predict(test.features), model_of(whole).predict(test.features))
    assert load_model(tmp_path)[0].tensors == whole.record.tensors


def test_a_set_that_no_train_row_has_is_answered_by_those_below(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    third = np.arange(24) % 3
    for place, m in enumerate(("text", "audio", "visual")):
        arrays[f"train_{m}_available"] = third == place
    file = write_npz(tmp_path / "d.npz", arrays)
    settings = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.size=0"]
    features.run(load_params(None, settings), tmp_path / "set")
    backbone = model_of(train(tmp_path / "set")).backbone
    assert isinstance(backbone, LatticeBackbone)
    weights = backbone.weights(("audio", "text", "visual"))
    assert set(weights) <= {("audio",), ("text",), ("visual",)}
    assert sum(weights.values()) == pytest.approx(1)


def test_a_module_that_errs_more_counts_less(whole: Trained) -> None:
    backbone = model_of(whole).backbone
    assert isinstance(backbone, LatticeBackbone)
    weights = backbone.weights(("audio", "text", "visual"))
    ordered = sorted(weights, key=lambda tag: backbone.modules[tag].error)
    assert sorted(weights.values(), reverse=True) == [weights[tag] for tag in ordered]
    assert backbone.weights(("text",)) == {("text",): 1.0}


def test_a_modality_of_constant_zeros_is_worth_nothing_and_harms_nothing(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    for split in ("train", "valid", "test"):
        arrays[f"{split}_audio"] = np.zeros_like(arrays[f"{split}_audio"])
    file = write_npz(tmp_path / "d.npz", arrays)
    settings = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.size=0"]
    features.run(load_params(None, settings), tmp_path / "set")
    model = model_of(train(tmp_path / "set"))
    test = FeatureSet.open(tmp_path / "set").split("test").load()
    alone = model.predict({"audio": test.features["audio"]})
    np.testing.assert_allclose(alone, alone[0])


def test_a_modality_that_no_train_row_has_is_named(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    arrays["train_audio_available"] = np.zeros(24, bool)
    file = write_npz(tmp_path / "d.npz", arrays)
    settings = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.size=0"]
    features.run(load_params(None, settings), tmp_path / "set")
    with refused(DataError, key="audio", value=None):
        train(tmp_path / "set")


def test_one_group_alone_cannot_be_folded(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    for split in ("train", "valid", "test"):
        arrays[f"{split}_groups"] = np.full(len(arrays[f"{split}_ids"]), split)
    file = write_npz(tmp_path / "d.npz", arrays)
    settings = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.size=0"]
    features.run(load_params(None, settings), tmp_path / "set")
    with refused(DataError, key="train", value="train"):
        train(tmp_path / "set")


def test_folds_are_whole_groups_of_about_equal_size() -> None:
    groups = np.array([f"g{i // 7}" for i in range(350)])
    folds = assign_folds(groups, 5, 0)
    assert all(len(set(folds[groups == g])) == 1 for g in set(groups))
    assert set(np.bincount(folds)) == {70}

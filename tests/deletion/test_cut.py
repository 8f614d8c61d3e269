"""The structural cut: what is left has the shapes of a model that never saw the modality, and no way in for it."""

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.deletion.cut import cut
from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.formats.model import ColumnRange, DataRecord, ModelRecord
from mbd.model.checkpoint import describe, load_model, save_model
from mbd.model.predictor import load
from mbd.params import load_params
from mbd.steps import predict
from mbd.tensors import Array
from mbd.training.lattice import train_lattice
from tests.deletion.models import home_with_models, model_before
from tests.evaluation.models import tiny_model
from tests.features.build import npz_arrays, small_collection, synthetic_set, write_npz
from tests.refusals import refused, refused_as_revoked

NAMES = ("text", "audio", "visual")
NO_PROPERTY = "model.joint.property_pathway=false"
ABLATIONS = (
    (),
    ("model.joint.fusion=false",),
    (NO_PROPERTY,),
    ("model.joint.reconstruction=false", "model.joint.fusion=false"),
)


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return home_with_models(tmp_path_factory.mktemp("home"))


def saved(folder: Path, record: ModelRecord, tensors: dict[str, Array]) -> Path:
    folder.mkdir(parents=True)
    save_model(folder, record, tensors)
    return folder


@pytest.mark.parametrize(
    ("gone", "ablation"),
    [
        *((("audio",), ablation) for ablation in ABLATIONS),
        *((("text", "visual"), ablation) for ablation in ABLATIONS if NO_PROPERTY not in ablation),
    ],
    ids=lambda part: "+".join(part) or "whole",
)
def test_what_is_left_has_the_shapes_of_a_model_trained_without(
    model_workspace: Path, tmp_path: Path, gone: tuple[str, ...], ablation: tuple[str, ...]
) -> None:
    data = model_workspace / "data"
    record, tensors = cut(*load_model(tiny_model(data, tmp_path / "model", "training.epochs=1", *ablation)), gone)
    reference, _ = load_model(tiny_model(data, tmp_path / "without", "training.epochs=1", *ablation, without=gone))
    assert {name: array.shape for name, array in tensors.items()} == {n: e.shape for n, e in reference.tensors.items()}
    unseen = {"sees"}
    for name, entry in reference.tensors.items():
        assert record.tensors[name].model_dump(exclude=unseen) == entry.model_dump(exclude=unseen)
    assert (record.modalities, record.revoked) == (reference.modalities, gone)
    model = load(saved(tmp_path / "cut", record, tensors))
    test = FeatureSet.open(data, without=gone).split("test").load()
    assert np.isfinite(model.predict(test.features)).all()
    with refused_as_revoked(gone[0]):
        model.predict({**test.features, gone[0]: np.zeros((len(test), 3))})


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_generator_that_is_left_without_inputs_is_no_obstacle(model_workspace: Path, tmp_path: Path) -> None:
    model = tiny_model(model_workspace / "data", tmp_path / "model", "training.epochs=1", NO_PROPERTY)
    alone = load(saved(tmp_path / "cut", *cut(*load_model(model), ["text", "visual"])))
    assert alone.record.tensors["modality.audio.generator.hidden.weight"].shape[-1] == 0
    assert np.isfinite(alone.predict({"audio": np.ones((3, 6), np.float32)})).all()


def test_kept_values_are_the_old_ones_and_still_say_what_they_have_seen(model_workspace: Path) -> None:
    before = model_before(model_workspace)
    record, tensors = cut(before.record, before.tensors, ["audio"])
    fusion, dims = before.tensors["fusion.hidden.weight"], before.record.modalities
    start = dims["text"]
    expected = np.delete(fusion, np.s_[start : start + dims["audio"]], axis=1)
    assert np.array_equal(tensors["fusion.hidden.weight"], expected)
    assert not any(name.startswith("modality.audio.") for name in tensors)
    assert record.tensors["head.weight"].sees == NAMES
    assert np.array_equal(tensors["head.weight"], before.tensors["head.weight"])


def test_one_after_the_other_is_both_at_once(model_workspace: Path) -> None:
    model = model_before(model_workspace)
    for first, second in combinations(NAMES, 2):
        one_by_one = cut(*cut(model.record, model.tensors, [first]), [second])
        at_once = cut(model.record, model.tensors, [second, first])
        assert one_by_one[0] == at_once[0]
        assert all(np.array_equal(one_by_one[1][name], tensor) for name, tensor in at_once[1].items())


def test_no_input_of_the_deleted_modality_moves_anything(model_workspace: Path, tmp_path: Path) -> None:
    """The same rows with other audio, through the same command, give the same bytes."""
    tables = []
    model = saved(tmp_path / "cut", *cut(*load_model(model_workspace / "model"), ["audio"]))
    arrays = npz_arrays(small_collection(dims={"text": 12, "audio": 6, "visual": 8}))
    for scale in (1, 1000):
        arrays["test_audio"] = arrays["test_audio"] * scale
        file = write_npz(tmp_path / f"{scale}.npz", arrays)
        data = synthetic_set(tmp_path / f"data{scale}", "features.source.kind=npz", f"features.source.path={file}")
        predict.run(data, model, tmp_path / f"{scale}.csv")
        predict.run(data, model_workspace / "model", tmp_path / f"before{scale}.csv")
        tables.append((tmp_path / f"{scale}.csv").read_bytes())
    assert tables[0] == tables[1]
    assert (tmp_path / "before1.csv").read_bytes() != (tmp_path / "before1000.csv").read_bytes()


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        (NAMES, "at least one must be left"),
        (("smell",), "no modality smell"),
        ((), "no modality to delete was named"),
    ],
)
def test_what_cannot_be_deleted_is_refused(model_workspace: Path, gone: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        cut(*load_model(model_workspace / "model"), gone)


def test_a_modality_is_deleted_once_and_the_last_one_never(model_workspace: Path) -> None:
    without = cut(*load_model(model_workspace / "model"), ["audio"])
    with refused_as_revoked("audio"):
        cut(*without, ["audio"])
    with refused(UsageError, value="text, visual"):
        cut(*without, ["text", "visual"])


def test_a_lattice_is_not_cut(model_workspace: Path) -> None:
    params = load_params(None, ["model.lattice.components=4", "model.lattice.landmarks=0"])
    trained = train_lattice(FeatureSet.open(model_workspace / "data"), params, work=model_workspace, progress=False)
    with refused(UsageError, key="model.backbone"):
        cut(trained.record, trained.tensors, ["audio"])


def record_of(
    tensors: dict[str, Array], columns: dict[str, tuple[ColumnRange, ...]], dims: dict[str, int]
) -> ModelRecord:
    return ModelRecord(
        backbone="joint",
        spec={},
        task="regression",
        classes=(),
        label_range=None,
        modalities=dims,
        seed="0",
        data=DataRecord(name="d", files={}),
        tensors={name: describe(t, tuple(dims), columns=columns.get(name, ())) for name, t in tensors.items()},
        sha256="",
    )


def test_columns_that_read_two_things_at_once_cannot_be_cut() -> None:
    tensors: dict[str, Array] = {"w": np.zeros((2, 5))}
    for a, b, problem in ((0, 2, "overlap"), (3, 0, "the tensor has 5")):
        spans = (ColumnRange(start=a, stop=a + 3, reads="a"), ColumnRange(start=b, stop=b + 3, reads="b"))
        with refused(DataError, match=problem, key="w"):
            cut(record_of(tensors, {"w": spans}, {"a": 3, "b": 3}), tensors, ["a"])


@settings(deadline=None, max_examples=60)
@given(
    widths=st.lists(st.integers(0, 4), min_size=2, max_size=6),
    order=st.randoms(use_true_random=False),
    gaps=st.integers(0, 3),
)
def test_every_column_that_is_left_still_reads_what_the_record_says(
    widths: list[int], order: random.Random, gaps: int
) -> None:
    """Columns hold the number of the modality they read (−1: none); ranges stand in any order, with gaps."""
    dims = {f"m{k}": width for k, width in enumerate(widths)}
    codes, spans = [-1.0] * gaps, []
    for code, (name, width) in enumerate(dims.items()):
        spans.append(ColumnRange(start=len(codes), stop=len(codes) + width, reads=name))
        codes += [float(code)] * width + [-1.0] * gaps
    order.shuffle(spans)
    tensors: dict[str, Array] = {"w": np.tile(codes, (2, 3, 1)), "v": np.arange(4.0)}
    gone = tuple(name for name in list(dims)[:-1] if order.random() < 0.5) or ("m0",)
    record, left = cut(record_of(tensors, {"w": tuple(spans)}, dims), tensors, gone)
    entry = record.tensors["w"]
    assert entry.shape == left["w"].shape == (2, 3, len(codes) - sum(dims[m] for m in gone))
    assert {span.reads for span in entry.columns} == set(dims) - set(gone) == set(record.modalities)
    read = np.full(entry.shape[-1], -1.0)
    for span in entry.columns:
        read[span.start : span.stop] = float(span.reads[1:])
    assert np.array_equal(left["w"], np.broadcast_to(read, entry.shape))
    assert np.array_equal(left["v"], tensors["v"])

"""Modalities that are no vectors: from a file to a FeatureSet and back, as bytes, half floats and token ids."""

from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError, UsageError
from mbd.features.contract import FeatureSet
from mbd.features.corruption import corrupt
from mbd.features.pooling import as_vectors
from mbd.features.rows import Collection, within
from mbd.features.sources import read_source
from mbd.formats.features import MANIFEST, Manifest, Shape
from mbd.params import load_params
from mbd.params.base import CorruptionSettings
from mbd.registry import BACKBONES
from mbd.steps import features
from mbd.tensors import Array
from tests.features.build import shaped_arrays, shaped_set, synthetic_set, write_npz
from tests.refusals import refused

SHAPES = {
    "text": Shape(kind="tokens", size=(6,), vocabulary=40),
    "audio": Shape(kind="sequence", size=(8, 4), dtype="float16"),
    "image": Shape(kind="image", size=(2, 8, 8), dtype="uint8"),
}


@pytest.fixture(scope="module")
def shaped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shaped_set(tmp_path_factory.mktemp("shapes") / "set")


def read(path: Path, arrays: dict[str, Array], *settings: str) -> Collection:
    return read_source(load_params(None, [f"features.source.path={write_npz(path, arrays)}", *settings]).features)


def test_the_manifest_lists_shape_and_dtype_of_every_modality(shaped: Path) -> None:
    data = FeatureSet.open(shaped, verify=True)
    assert data.shapes == SHAPES
    assert data.modalities == {"text": 1, "audio": 4, "image": 2}


def test_arrays_come_back_as_they_were_stored_and_stay_on_disk(shaped: Path) -> None:
    split, arrays = FeatureSet.open(shaped).split("test"), np.load(shaped.with_suffix(".npz"))
    assert {m: x.dtype.name for m, x in split.features.items()} == {
        "text": "int64",
        "audio": "float16",
        "image": "uint8",
    }
    assert not split.features["image"].flags.owndata
    np.testing.assert_array_equal(split.features["image"], arrays["test_image"])
    rows = split.take(np.array([3, 1]))
    np.testing.assert_array_equal(rows.lengths["audio"], arrays["test_audio_lengths"][[3, 1]])
    inside = within(rows.lengths["audio"], 8)
    np.testing.assert_array_equal(rows.features["audio"], arrays["test_audio"][[3, 1]] * inside[:, :, None])
    assert list(rows.inputs(["audio", "image"])) == ["audio", "audio_lengths", "image"]


def test_a_vector_is_listed_by_its_width_alone_as_it_always_was(tmp_path: Path) -> None:
    manifest = (synthetic_set(tmp_path / "set") / MANIFEST).read_text()
    assert '"modalities": {\n    "text": 12,\n    "audio": 6,\n    "visual": 8\n  }' in manifest
    assert Manifest.model_validate_json(manifest).modalities["audio"] == Shape.vector(6)


@pytest.mark.parametrize("backbone", ["joint", "lattice"])
def test_a_backbone_that_takes_vectors_names_the_modality_its_shape_and_a_hint(backbone: str, shaped: Path) -> None:
    train = BACKBONES.get(backbone).train
    with refused(UsageError, key="text", value="tokens 6", hint="features.source.sequences=mean"):
        train(FeatureSet.open(shaped), load_params(None, []), work=shaped / "none", progress=False)


def test_sequences_become_their_mean_on_request(tmp_path: Path) -> None:
    arrays = shaped_arrays()
    found = read(tmp_path / "d.npz", arrays, "features.source.sequences=mean").splits["train"]
    first = arrays["train_audio"][0, : arrays["train_audio_lengths"][0]].astype(np.float64).mean(0)
    assert np.allclose(found.features["audio"][0], first, atol=1e-3)
    assert "audio" not in found.lengths
    assert "text" in found.lengths


def test_whole_numbers_without_lengths_are_vectors(tmp_path: Path) -> None:
    arrays = {name: x for name, x in shaped_arrays().items() if not name.endswith("text_lengths")}
    assert read(tmp_path / "d.npz", arrays).shapes["text"] == Shape.vector(6)


def test_a_row_of_length_0_lacks_the_modality(tmp_path: Path) -> None:
    arrays = shaped_arrays()
    arrays["train_audio_lengths"][2] = 0
    assert np.flatnonzero(~read(tmp_path / "d.npz", arrays).splits["train"].available["audio"]).tolist() == [2]


@pytest.mark.parametrize(
    ("key", "array", "problem"),
    [
        ("train_audio_lengths", np.full(24, 9), "from 0 to 8 for each row"),
        ("train_audio_lengths", np.full(7, 3), "from 0 to 8 for each row"),
        ("train_image_lengths", np.full(24, 3), "have lengths"),
        ("train_image", np.ones((24, 2, 2, 8, 8)), "two, three or four dimensions"),
        ("valid_audio", np.ones((8, 8, 5), np.float16), "the dimension of audio differs between splits"),
        ("valid_text", np.full((8, 6), -1), "token ids are counted from 0"),
        ("valid_audio", np.full((8, 8, 4), np.nan, np.float16), "NaN or infinite"),
    ],
)
def test_wrong_arrays_are_refused_with_their_name(key: str, array: Array, problem: str, tmp_path: Path) -> None:
    file = write_npz(tmp_path / "d.npz", shaped_arrays() | {key: array})
    with refused(DataError, match=problem, key=key):
        features.run(load_params(None, [f"features.source.path={file}"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_whatever_needs_vectors_gets_one_for_each_modality(shaped: Path) -> None:
    rows = FeatureSet.open(shaped).split("test").load()
    vectors = as_vectors(rows)
    assert {m: x.shape[1] for m, x in vectors.features.items()} == {"text": 256, "audio": 8, "image": 128}
    frames = rows.features["audio"][5, : rows.lengths["audio"][5]].astype(np.float64)
    assert np.allclose(vectors.features["audio"][5], [*frames.mean(0), *frames.std(0)], atol=1e-3)
    assert np.allclose(vectors.features["image"][5], rows.features["image"][5].ravel())
    assert np.allclose(vectors.features["text"].sum(1), 1)
    assert all(as_vectors(vectors).features[m] is x for m, x in vectors.features.items())


def test_damage_changes_chosen_rows_within_their_lengths(shaped: Path) -> None:
    rows = FeatureSet.open(shaped).split("test").load()
    damaged = corrupt(rows, CorruptionSettings(share=0.5), seed=1)
    for m, x in rows.features.items():
        changed = (x != damaged.features[m]).reshape(len(x), -1).any(1)
        assert 0 < changed.sum() <= 32
        assert damaged.features[m].dtype == x.dtype
    behind = ~within(rows.lengths["audio"], 8)
    assert not damaged.features["audio"][behind].any()


def test_the_preset_of_sequences_shows_less_in_its_mean(tmp_path: Path) -> None:
    small = ["features.source.preset=sequences", "features.source.synthetic.rows={train: 400, valid: 32, test: 200}"]
    kept = features.run(load_params(None, small), tmp_path / "kept")
    mean = features.run(load_params(None, [*small, "features.source.sequences=mean"]), tmp_path / "mean")
    assert kept.modalities["audio"] == "sequence 24 × 24"
    assert mean.modalities["audio"] == 24
    assert kept.ridge["all"]["mae"] < 0.85 * mean.ridge["all"]["mae"]
    without = [*small, "features.source.modalities=[text, visual]"]
    fewer = read_source(load_params(None, without).features).splits["test"]
    np.testing.assert_array_equal(
        fewer.features["visual"], FeatureSet.open(tmp_path / "kept").split("test").features["visual"]
    )

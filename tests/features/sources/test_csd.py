"""The csd source on files as CMU-MultimodalSDK writes them."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Collection
from mbd.features.sources import read_source
from mbd.params import load_params
from mbd.steps import features
from mbd.tensors import Array
from tests.refusals import refused

Segments = dict[str, tuple[Any, Any]]
FOLDS = {"train": ["a"], "valid": ["b"], "test": ["c"]}


@pytest.fixture(autouse=True)
def _no_params_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_csd(path: Path, segments: Segments, root: str = "a sequence") -> None:
    """Write features and intervals by segment, compressed and with metadata, as the SDK does."""
    with h5py.File(path, "w") as file:
        data = file.create_group(f"{root}/data")
        for name, (values, intervals) in segments.items():
            data.create_dataset(f"{name}/features", data=np.asarray(values), compression="gzip", compression_opts=9)
            data.create_dataset(f"{name}/intervals", data=np.asarray(intervals), compression="gzip", compression_opts=9)
        metadata = file.create_group(f"{root}/metadata")
        metadata.create_dataset("root name", (1,), dtype=h5py.special_dtype(vlen=str))[0] = json.dumps(root)


def write_folder(folder: Path, labels: Segments, folds: object = FOLDS, **sequences: Segments) -> Path:
    write_csd(folder / "labels.csd", labels, "All Labels")
    for modality, segments in sequences.items():
        write_csd(folder / f"{modality}.csd", segments)
    (folder / "folds.json").write_text(json.dumps(folds))
    return folder


def read(folder: Path, *settings: str) -> Collection:
    kind = ["features.source.kind=csd", f"features.source.path={folder}"]
    return read_source(load_params(None, [*kind, *settings]).features)


def frames(values: list[float], step: float = 1.0) -> tuple[Array, Array]:
    """One number each `step` seconds, from zero on."""
    starts = np.arange(len(values)) * step
    return np.array(values, dtype=np.float32)[:, None], np.stack([starts, starts + step], axis=1)


LABELS: Segments = {
    "a": (np.array([[1.0], [-2.0]]), [[0.0, 1.5], [1.5, 4.0]]),
    "b": (np.array([[0.5]]), [[0.0, 2.0]]),
    "c": (np.array([[3.0]]), [[1.0, 2.0]]),
}
SPEECH: Segments = {video: frames([10, 20, 30, 40]) for video in "abc"}


def test_each_utterance_is_the_mean_of_its_frames_weighted_by_the_seconds_they_share(tmp_path: Path) -> None:
    found = read(write_folder(tmp_path, LABELS, text=SPEECH, audio=SPEECH))
    train = found.splits["train"]
    assert train.ids.tolist() == ["a_0", "a_1"]
    assert train.groups.tolist() == ["a", "a"]
    assert train.labels.tolist() == [1.0, -2.0]
    # 0–1.5 s: all of 10 and half of 20; 1.5–4 s: half of 20, all of 30 and of 40.
    np.testing.assert_allclose(train.features["text"][:, 0], [(10 + 0.5 * 20) / 1.5, (0.5 * 20 + 30 + 40) / 2.5])
    assert found.splits["valid"].features["audio"].tolist() == [[15.0]]
    assert found.splits["test"].features["audio"].tolist() == [[20.0]]
    assert train.features["text"].dtype == np.float32
    assert (found.task, found.modalities, dict(found.notes)) == ("regression", {"audio": 1, "text": 1}, {})


def test_frames_may_overlap_and_be_in_any_order(tmp_path: Path) -> None:
    words = (np.array([[1.0, 8.0], [4.0, 2.0]]), [[1.0, 3.0], [0.0, 2.0]])
    found = read(write_folder(tmp_path, LABELS, text=dict.fromkeys("abc", words), audio=SPEECH))
    # both words share the whole second 1–2 with c_0
    assert found.splits["test"].features["text"].tolist() == [[2.5, 5.0]]
    np.testing.assert_allclose(
        found.splits["train"].features["text"],
        [[(0.5 * 1 + 1.5 * 4) / 2, (0.5 * 8 + 1.5 * 2) / 2], [(1.5 * 1 + 0.5 * 4) / 2, (1.5 * 8 + 0.5 * 2) / 2]],
    )


def test_segments_of_files_that_the_sdk_has_aligned_already(tmp_path: Path) -> None:
    labels = {
        "a[10]": (np.array([[2.0]]), [[4.0, 6.0]]),
        "a[2]": (np.array([[1.0]]), [[0.0, 2.0]]),
        "b[0]": LABELS["b"],
        "c": LABELS["c"],
    }
    aligned = {
        "a[2]": (np.array([[1.0], [3.0]]), [[0.0, 0.5], [0.5, 2.0]]),
        "a[10]": (np.array([[7.0]]), [[4.0, 6.0]]),
        "b": frames([1, 2]),
        "c[0]": frames([5, 6]),
    }
    found = read(write_folder(tmp_path, labels, text=aligned, audio=SPEECH))
    train = found.splits["train"]
    assert train.ids.tolist() == ["a_2", "a_10"]
    assert train.features["text"].tolist() == [[2.5], [7.0]]
    assert train.groups.tolist() == ["a", "a"]
    assert found.splits["test"].features["text"].tolist() == [[6.0]]


def test_no_overlap_and_no_video_mean_unavailable_and_are_zero(tmp_path: Path) -> None:
    late = (np.array([[9.0]]), [[1.5, 3.0]])
    found = read(write_folder(tmp_path, LABELS, text=SPEECH, audio={"a": late, "c": frames([4, 5])}))
    train, valid = found.splits["train"], found.splits["valid"]
    assert train.available["audio"].tolist() == [False, True]
    assert train.features["audio"].tolist() == [[0.0], [9.0]]
    assert valid.available["audio"].tolist() == [False]
    assert valid.features["audio"].tolist() == [[0.0]]
    assert dict(found.notes) == {"audio: videos without it": 1}


def test_rounded_ends_that_only_touch_are_no_overlap(tmp_path: Path) -> None:
    touching = (np.array([[9.0]]), [[1.5 - 1e-6, 4.0]])
    found = read(write_folder(tmp_path, LABELS, text=SPEECH, audio=SPEECH | {"a": touching}))
    assert found.splits["train"].available["audio"].tolist() == [False, True]


def test_nan_and_infinities_become_zero_and_are_counted(tmp_path: Path) -> None:
    covarep = frames([-np.inf, 20, np.nan, np.inf])
    found = read(write_folder(tmp_path, LABELS, text=SPEECH, audio=SPEECH | {"a": covarep}))
    np.testing.assert_allclose(found.splits["train"].features["audio"][:, 0], [0.5 * 20 / 1.5, 0.5 * 20 / 2.5])
    assert dict(found.notes) == {"audio: NaN or infinite values set to zero": 3}


def test_values_beyond_float32_are_infinite_too(tmp_path: Path) -> None:
    wide = (np.array([[1e300], [2.0]]), [[0.0, 1.0], [1.0, 2.0]])
    found = read(write_folder(tmp_path, LABELS, text=SPEECH, audio=SPEECH | {"b": wide}))
    assert found.splits["valid"].features["audio"].tolist() == [[1.0]]


def test_the_first_of_seven_label_columns_is_the_sentiment(tmp_path: Path) -> None:
    emotions = {video: (np.hstack([x, np.full((len(x), 6), 2.5)]), when) for video, (x, when) in LABELS.items()}
    found = read(write_folder(tmp_path, emotions, text=SPEECH, audio=SPEECH))
    assert found.splits["train"].labels.tolist() == [1.0, -2.0]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    labels = LABELS | {
        "stranger": LABELS["b"],
        "b": (np.array([[0.5], [1.0]]), [[0.0, 2.0], [90.0, 91.0]]),
    }
    folds = FOLDS | {"train": ["a", "silent"]}
    speech = SPEECH | {"silent": frames([1])}
    found = read(write_folder(tmp_path, labels, folds, text=speech, audio=speech))
    assert dict(found.notes) == {
        "videos in no fold, left out": 1,
        "videos without labels, left out": 1,
        "rows without any modality, left out": 1,
    }
    assert found.splits["valid"].ids.tolist() == ["b_0"]


def test_sequences_are_named_in_the_parameters_and_modalities_chosen(tmp_path: Path) -> None:
    write_folder(tmp_path, LABELS, COVAREP=SPEECH, Words_2=SPEECH, FACET=SPEECH)
    (tmp_path / "FACET.csd").rename(tmp_path / "FACET 4.2.csd")
    assert list(read(tmp_path).modalities) == ["covarep", "facet_4_2", "words_2"]
    names = "features.source.csd.sequences={text: Words_2.csd, audio: COVAREP.csd, visual: FACET 4.2.csd}"
    assert list(read(tmp_path, names).modalities) == ["text", "audio", "visual"]
    assert list(read(tmp_path, names, "features.source.modalities=[visual, text]").modalities) == ["visual", "text"]
    with refused(DataError, key="features.source.modalities", file=tmp_path):
        read(tmp_path, names, "features.source.modalities=[text, smell]")


def test_whole_numbers_are_classes_when_the_parameters_say_so(tmp_path: Path) -> None:
    labels = {video: (np.abs(np.round(x)), when) for video, (x, when) in LABELS.items()}
    write_folder(tmp_path, labels, text=SPEECH, audio=SPEECH)
    found = read(tmp_path, "features.source.task=classification")
    assert (found.task, found.classes) == ("classification", ("0", "1", "2", "3"))
    assert found.splits["train"].labels.tolist() == [1, 2]
    write_csd(tmp_path / "labels.csd", LABELS)
    with refused(DataError, key="labels"):
        read(tmp_path, "features.source.task=classification")


def no_data_group(folder: Path) -> None:
    with h5py.File(folder / "text.csd", "w") as file:
        file.create_group("words/metadata")


def data_is_no_group(folder: Path) -> None:
    with h5py.File(folder / "text.csd", "w") as file:
        file["words/data"] = np.zeros(3)


def no_intervals(folder: Path) -> None:
    with h5py.File(folder / "text.csd", "a") as file:
        del file["a sequence/data/a/intervals"]


def segment_is_no_group(folder: Path) -> None:
    with h5py.File(folder / "text.csd", "a") as file:
        del file["a sequence/data/a"]
        file["a sequence/data/a"] = np.zeros((3, 2))


def flipped_bytes(folder: Path) -> None:
    values = np.random.default_rng(0).standard_normal((500, 3))
    write_csd(folder / "text.csd", SPEECH | {"a": (values, np.tile([0.0, 1.0], (500, 1)))})
    with h5py.File(folder / "text.csd") as file:
        chunk = file["a sequence/data/a/features"].id.get_chunk_info(0)
    content = bytearray((folder / "text.csd").read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"\x55" * chunk.size
    (folder / "text.csd").write_bytes(content)


def cut_off(folder: Path) -> None:
    content = (folder / "text.csd").read_bytes()
    (folder / "text.csd").write_bytes(content[: len(content) // 2])


def with_segment(values: object, intervals: object) -> Any:
    def damage(folder: Path) -> None:
        write_csd(folder / "text.csd", SPEECH | {"b": (values, intervals)})

    return damage


def with_folds(folds: object) -> Any:
    def damage(folder: Path) -> None:
        (folder / "folds.json").write_text(json.dumps(folds))

    return damage


DAMAGES = {
    "cut off": (cut_off, "not an HDF5 file, or it is cut off"),
    "not HDF5": (lambda folder: (folder / "text.csd").write_bytes(b"RIFF" * 99), "not an HDF5 file"),
    "chunk damaged": (flipped_bytes, "the file is damaged"),
    "no data group": (no_data_group, "one root group with a group `data`"),
    "data is no group": (data_is_no_group, "one root group with a group `data`"),
    "no intervals": (no_intervals, "no features or no intervals"),
    "segment is no group": (segment_is_no_group, "no features or no intervals"),
    "flat intervals": (with_segment(np.zeros((2, 3)), [0.0, 1.0]), "intervals are no matrix of seconds"),
    "three interval columns": (with_segment(np.zeros((2, 1)), np.zeros((2, 3))), "intervals are no matrix of seconds"),
    "flat features": (with_segment(np.zeros(2), np.zeros((2, 2))), "features are no matrix of numbers"),
    "words": (with_segment(np.array([[b"hello"]]), [[0.0, 1.0]]), "features are no matrix of numbers"),
    "fewer intervals": (with_segment(np.zeros((3, 1)), np.zeros((2, 2))), "3 rows of features and 2 intervals"),
    "NaN interval": (with_segment(np.zeros((1, 1)), [[0.0, np.nan]]), "begins or ends at NaN"),
    "other dimension": (with_segment(np.zeros((1, 2)), [[0.0, 1.0]]), "it has 2 columns, other videos 1"),
    "labels missing": (lambda folder: (folder / "labels.csd").unlink(), "the sequence is missing"),
    "folds missing": (lambda folder: (folder / "folds.json").unlink(), "the folds are missing"),
    "folds not JSON": (lambda folder: (folder / "folds.json").write_text("{"), "not JSON"),
    "folds a list": (with_folds([]), "must map splits to videos"),
    "fold of numbers": (with_folds(FOLDS | {"test": [1]}), "a fold must be a list of video ids"),
    "unknown split": (with_folds(FOLDS | {"trial": ["a"]}), "there is no such split"),
    "in two folds": (with_folds(FOLDS | {"dev": ["a"]}), "a video is in two folds"),
    "unknown video": (
        with_folds(FOLDS | {"test": ["c", "nobody"]}),
        "the folds name videos that are in none of the files",
    ),
    "nothing in common": (
        lambda folder: write_csd(folder / "text.csd", {"z": frames([1])}),
        "no utterance has anything of the modality text",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_has_an_error_of_its_own_that_names_the_file(tmp_path: Path, damage: str) -> None:
    do_damage, message = DAMAGES[damage]
    do_damage(write_folder(tmp_path, LABELS, text=SPEECH, audio=SPEECH))
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path)
    assert str(tmp_path) in str(caught.value.file)


def test_a_folder_without_sequences_and_no_folder_at_all(tmp_path: Path) -> None:
    write_folder(tmp_path, LABELS)
    with refused(DataError, match=r"no \.csd file", file=tmp_path):
        read(tmp_path)
    with refused(DataError, key="features.source.path", file=tmp_path / "nowhere"):
        read(tmp_path / "nowhere")


def test_an_aligned_label_segment_with_two_intervals_is_refused(tmp_path: Path) -> None:
    labels = LABELS | {"b[0]": LABELS["a"]}
    del labels["b"]
    write_folder(tmp_path, labels, text=SPEECH, audio=SPEECH)
    with refused(DataError, match="2 intervals", key="data/b[0]"):
        read(tmp_path)


def test_the_step_writes_a_feature_set_of_such_a_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    videos = {split: [f"{split}{i}" for i in range(n)] for split, n in {"train": 12, "val": 4, "test": 4}.items()}
    every = [video for names in videos.values() for video in names]
    times = np.stack([np.arange(5) * 2.0, np.arange(5) * 2.0 + 1.5], axis=1)
    labels = {video: (rng.uniform(-3, 3, (5, 7)), times) for video in every}

    def sequence(rate: float, dim: int) -> Segments:
        when = np.stack([np.arange(0, 10, 1 / rate), np.arange(0, 10, 1 / rate) + 1 / rate], axis=1)
        return {video: (rng.standard_normal((len(when), dim)).astype(np.float32), when) for video in every}

    (tmp_path / "mosei").mkdir()
    audio = sequence(100, 7)
    audio["train0"][0][3, 2] = -np.inf
    del audio["test3"]
    write_folder(tmp_path / "mosei", labels, videos, text=sequence(2.5, 6), audio=audio, visual=sequence(30, 4))
    params = load_params(None, ["features.source.kind=csd", f"features.source.path={tmp_path / 'mosei'}"])
    summaries = [features.run(params, tmp_path / name) for name in ("one", "two")]
    assert summaries[0] == summaries[1]
    assert summaries[0].notes == {
        "audio: NaN or infinite values set to zero": 1,
        "audio: videos without it": 1,
    }
    feature_set = FeatureSet.open(tmp_path / "one", verify=True)
    assert feature_set.digests() == FeatureSet.open(tmp_path / "two").digests()
    assert feature_set.manifest.name == "mosei"
    assert feature_set.modalities == {"audio": 7, "text": 6, "visual": 4}
    assert set(feature_set.manifest.provenance["files"]) == {
        "audio.csd", "text.csd", "visual.csd", "labels.csd", "folds.json"
    }  # fmt: skip
    assert {s: len(feature_set.split(s)) for s in ("valid", "test")} == {"valid": 20, "test": 20}
    assert len(feature_set.split("train")) + len(feature_set.split("calibration")) == 60
    test = feature_set.split("test").load()
    assert test.available["audio"].tolist() == [True] * 15 + [False] * 5
    frames_of_test0 = audio["test0"][0][200:350].mean(axis=0)
    np.testing.assert_allclose(test.features["audio"][1], frames_of_test0, atol=1e-5)

"""Source mmsa: files as MMSA writes them."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.features.rows import Collection
from mbd.features.sources import read_source
from mbd.params import load_params
from mbd.steps import features
from tests.features.hostile import call, name, text, whole
from tests.refusals import refused

SIZES = {"train": 30, "valid": 9, "test": 12}
POLARITIES = np.array(["Negative", "Neutral", "Positive"])


def split(title: str, rows: int, *, aligned: bool) -> dict[str, Any]:
    """Entries in MMSA's order, types and shapes: text 50 × 8, audio 375 × 5 and vision 500 × 20 where unaligned."""
    rng = np.random.default_rng([rows, aligned])
    labels = ((np.arange(rows) * 5 % 13 - 6) / 2).astype(np.float32)
    polarity = np.sign(labels).astype(int) + 1
    text_lengths = rng.integers(3, 50, rows)
    entries: dict[str, Any] = {
        "raw_text": np.array([f"word {row}" for row in range(rows)], dtype=object),
        "audio": padded(rng, text_lengths if aligned else rng.integers(1, 375, rows), 50 if aligned else 375, 5),
        "vision": padded(rng, text_lengths if aligned else rng.integers(1, 500, rows), 50 if aligned else 500, 20),
        "id": [f"{title}_v{row // 4}$_${row % 4}" for row in range(rows)],
        "text": padded(rng, text_lengths, 50, 8).astype(np.float32),
        "text_bert": (np.arange(50) < text_lengths[:, None, None]) * np.array([101.0, 1.0, 0.0])[:, None],
        "annotations": POLARITIES[polarity].tolist(),
        "classification_labels": polarity.astype(np.float64),
        "regression_labels": labels,
    }
    if not aligned:
        entries["audio_lengths"] = (entries["audio"] != 0).any(axis=2).sum(axis=1).tolist()
        entries["vision_lengths"] = (entries["vision"] != 0).any(axis=2).sum(axis=1)
    return entries


def padded(rng: np.random.Generator, lengths: Any, frames: int, dim: int) -> Any:
    sequences = rng.standard_normal((len(lengths), frames, dim))
    sequences[np.arange(frames) >= lengths[:, None]] = 0
    return sequences


def mmsa(*, aligned: bool = False) -> dict[str, dict[str, Any]]:
    return {title: split(title, rows, aligned=aligned) for title, rows in SIZES.items()}


def write(path: Path, content: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def settings(path: Path, *more: str) -> list[str]:
    return ["features.source.kind=mmsa", f"features.source.path={path}", *more]


def read(path: Path, *more: str) -> Collection:
    return read_source(load_params(None, settings(path, *more)).features)


def test_sequences_are_kept_on_request_and_padded_behind(tmp_path: Path) -> None:
    content = mmsa()
    audio = content["train"]["audio"]
    audio[0] = np.roll(audio[0], 375 - content["train"]["audio_lengths"][0], axis=0)  # padded in front
    audio[1, 0, 0] = -np.inf
    collection = read(write(tmp_path / "mosi.pkl", content), "features.source.sequences=keep")
    assert {m: shape.size for m, shape in collection.shapes.items()} == {
        "text": (50, 8), "audio": (375, 5), "visual": (500, 20)
    }  # fmt: skip
    rows = collection.splits["train"]
    assert rows.lengths["audio"].tolist() == content["train"]["audio_lengths"]
    length = int(rows.lengths["audio"][0])
    np.testing.assert_array_equal(rows.features["audio"][0, :length], audio[0, 375 - length :].astype(np.float32))
    assert not rows.features["audio"][0, length:].any()
    assert collection.notes["values that were NaN or infinite, set to 0"] == {"train": {"audio": 1}}


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_sequences_become_means_over_their_true_length(aligned: bool, protocol: int, tmp_path: Path) -> None:
    content = mmsa(aligned=aligned)
    collection = read(write(tmp_path / "mosi.pkl", content, protocol))
    assert (collection.name, collection.task) == ("mosi", "regression")
    assert collection.modalities == {"text": 8, "audio": 5, "visual": 20}
    assert collection.notes == {}
    for title, rows in collection.splits.items():
        for modality, entry in (("text", "text"), ("audio", "audio"), ("visual", "vision")):
            sequences = content[title][entry]
            frames = (sequences != 0).any(axis=2).sum(axis=1)
            expected = sequences.sum(axis=1, dtype=np.float64) / frames[:, None]
            np.testing.assert_allclose(rows.features[modality], expected, rtol=1e-5, atol=1e-7)
            assert rows.features[modality].dtype == np.float32
            assert rows.available[modality].all()
        np.testing.assert_array_equal(rows.labels, content[title]["regression_labels"])
        np.testing.assert_array_equal(rows.ids, content[title]["id"])


def test_clips_of_one_video_are_one_group(tmp_path: Path) -> None:
    groups = read(write(tmp_path / "d.pkl", mmsa())).splits["train"].groups
    assert groups[:5].tolist() == ["train_v0"] * 4 + ["train_v1"]


def test_the_whole_step_writes_a_feature_set_with_what_was_corrected(tmp_path: Path) -> None:
    content = mmsa()
    content["train"]["audio"][:2, 0, 0] = -np.inf
    content["test"]["vision"][3, 1, :4] = np.nan
    content["test"]["audio"][5] = 0
    file = write(tmp_path / "unaligned_50.pkl", content)
    summary = features.run(load_params(None, settings(file, "features.calibration.share=0.3")), tmp_path / "set")
    assert summary.modalities == {"text": 8, "audio": 5, "visual": 20}
    assert sum(summary.rows.values()) == sum(SIZES.values())
    assert summary.notes == {
        "values that were NaN or infinite, set to 0": {"train": {"audio": 2}, "test": {"visual": 4}},
        "rows without the modality": {"test": {"audio": 1}},
    }
    opened = FeatureSet.open(tmp_path / "set", verify=True)
    assert opened.manifest.provenance["notes"] == summary.notes
    assert opened.split("test").available["audio"].tolist() == [row != 5 for row in range(12)]


def test_the_mask_of_text_bert_gives_the_length_of_text(tmp_path: Path) -> None:
    content = mmsa(aligned=True)
    for entries in content.values():
        entries["text"] = np.ones_like(entries["text"]) * np.arange(50)[:, None]
        entries["text_bert"][:, 1] = np.arange(50) < 4
    collection = read(write(tmp_path / "d.pkl", content))
    assert (collection.splits["train"].features["text"] == (0 + 1 + 2 + 3) / 4).all()


def test_lengths_longer_than_the_sequence_are_cut_and_noted(tmp_path: Path) -> None:
    content = mmsa()
    content["valid"]["audio_lengths"][0] = 400
    assert read(write(tmp_path / "d.pkl", content)).notes == {
        "lengths beyond the sequence, cut to it": {"valid": {"audio": 1}}
    }


def test_modalities_can_be_chosen(tmp_path: Path) -> None:
    file = write(tmp_path / "d.pkl", mmsa())
    assert read(file, "features.source.modalities=[visual, text]").modalities == {"visual": 20, "text": 8}
    with refused(DataError, key="features.source.modalities", file=file, hint="text, audio, visual"):
        read(file, "features.source.modalities=[text, smell]")


def test_token_ids_are_not_taken_for_vectors(tmp_path: Path) -> None:
    content = mmsa()
    for entries in content.values():
        del entries["text"]
    file = write(tmp_path / "d.pkl", content)
    assert read(file).modalities == {"audio": 5, "visual": 20}
    with pytest.raises(DataError, match="text_bert holds token ids, not vectors"):
        read(file, "features.source.modalities=[text, audio]")


@pytest.mark.parametrize(
    "setting", ["features.source.mmsa.labels=classification", "features.source.task=classification"]
)
def test_classes_are_named_by_their_annotations(setting: str, tmp_path: Path) -> None:
    content = mmsa()
    collection = read(write(tmp_path / "d.pkl", content), setting)
    assert (collection.task, collection.classes) == ("classification", ("Negative", "Neutral", "Positive"))
    np.testing.assert_array_equal(collection.splits["train"].labels, content["train"]["classification_labels"])
    assert collection.splits["train"].labels.dtype == np.int64


def test_classes_from_minus_one_up_are_numbered_from_zero(tmp_path: Path) -> None:
    content = mmsa()
    for entries in content.values():
        entries["classification_labels"] -= 1
        del entries["annotations"]
    collection = read(write(tmp_path / "d.pkl", content), "features.source.mmsa.labels=classification")
    assert collection.classes == ("-1", "0", "1")
    assert set(collection.splits["train"].labels) == {0, 1, 2}
    assert collection.notes == {"classes": "numbered -1 to 1 in the file, 0 to 2 here"}


def test_annotations_are_the_classes_where_there_are_no_numbers(tmp_path: Path) -> None:
    content = mmsa()
    for entries in content.values():
        del entries["classification_labels"]
    collection = read(write(tmp_path / "d.pkl", content), "features.source.mmsa.labels=classification")
    assert collection.classes == ("Negative", "Neutral", "Positive")
    assert collection.splits["test"].labels.tolist() == [
        collection.classes.index(name) for name in content["test"]["annotations"]
    ]


@pytest.mark.parametrize(
    ("wrong", "problem", "key"),
    [
        (lambda c: c.pop("valid"), "the split valid is missing", None),
        (lambda c: c.update(test=[1]), "the split test must be a dictionary", "test"),
        (lambda c: c["train"].pop("id"), "the entry id is missing in train", "train.id"),
        (lambda c: c["valid"].pop("vision"), "the entry vision is missing in valid", "valid.vision"),
        (lambda c: c["train"].update(id=[1, 2]), "id must be a list of texts", "train.id"),
        (lambda c: c["test"].update(audio=[[1.0]]), "audio must be an array of numbers", "test.audio"),
        (lambda c: c["test"].update(audio=np.ones(12)), "audio must be an array of numbers", "test.audio"),
        (lambda c: c["test"].update(text=c["test"]["text"][1:]), "as many rows of text as ids", "test.text"),
        (lambda c: c["test"]["audio_lengths"].pop(), "audio_lengths must have one for each row", "test.audio_lengths"),
        (lambda c: c["test"].update(audio_lengths=[-1] * 12), "is negative or no number", "test.audio_lengths"),
        (lambda c: c["train"].update(regression_labels=["x"] * 30), "list of numbers", "train.regression_labels"),
        (lambda c: c["train"].update(regression_labels=np.ones((30, 3))), "one for each", "train.regression_labels"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(wrong: Any, problem: str, key: str | None, tmp_path: Path) -> None:
    content = mmsa()
    wrong(content)
    with refused(DataError, match=problem, key=key, file=tmp_path / "d.pkl") as refusal:
        read(write(tmp_path / "d.pkl", content))
    assert refusal.value.hint


def test_classes_that_are_not_whole_numbers_are_refused(tmp_path: Path) -> None:
    content = mmsa()
    content["test"]["classification_labels"][3] = np.nan
    with refused(DataError, key="labels"):
        read(write(tmp_path / "d.pkl", content), "features.source.mmsa.labels=classification")


def test_another_pickle_is_refused(tmp_path: Path) -> None:
    with refused(DataError, value="tuple"):
        read(write(tmp_path / "d.pkl", ({}, [])))


def test_a_hostile_file_leaves_no_output_behind(tmp_path: Path) -> None:
    file = tmp_path / "d.pkl"
    file.write_bytes(whole(call(name("os", "system"), text(f"touch {tmp_path / 'sprung'}"))))
    with pytest.raises(DataError, match=r"it asks for os\.system"):
        features.run(load_params(None, settings(file)), tmp_path / "set")
    assert [path.name for path in tmp_path.iterdir()] == ["d.pkl"]

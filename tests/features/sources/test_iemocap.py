"""Source iemocap: tuples as the conversation-emotion projects write them."""

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
from tests.digests import path_digest
from tests.features.python2 import python2_dumps
from tests.refusals import refused

DIMS = {"text": 6, "audio": 4, "visual": 5}
TRAIN = [f"Ses0{session}{kind}" for session in range(1, 5) for kind in ("F_impro01", "M_impro02", "F_script01_1")]
TEST = ["Ses05F_impro01", "Ses05M_script03_2"]
NINE = ["ids", "speakers", "labels", "text", "audio", "visual", "sentences", "train", "test"]


def places(classes: int = 6) -> dict[str, Any]:
    """What the common tuple holds, by name: lists of arrays by dialogue, speakers as letters, sets of dialogues."""
    rng = np.random.default_rng(classes)
    found: dict[str, Any] = {name: {} for name in NINE[:7]}
    for place, dialogue in enumerate(TRAIN + TEST):
        rows = 6 + place % 5
        found["ids"][dialogue] = [f"{dialogue}_{'FM'[row % 2]}{row // 2:03d}" for row in range(rows)]
        found["speakers"][dialogue] = ["FM"[row % 2] for row in range(rows)]
        found["labels"][dialogue] = [(row + place) % classes for row in range(rows)]
        found["sentences"][dialogue] = [f"Well, number {row % 3}." for row in range(rows)]
        for modality, dim in DIMS.items():
            found[modality][dialogue] = [rng.standard_normal(dim) for _ in range(rows)]
    return found | {"train": set(TRAIN), "test": set(TEST)}


def write(path: Path, content: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(content, protocol))
    return path


def written(folder: Path, found: dict[str, Any], *order: str) -> Path:
    return write(folder / "IEMOCAP_features.pkl", tuple(found[name] for name in order or NINE))


def settings(path: Path, *more: str) -> list[str]:
    return ["features.source.kind=iemocap", f"features.source.path={path}", *more]


def read(path: Path, *more: str) -> Collection:
    return read_source(load_params(None, settings(path, *more)).features)


def test_the_common_tuple_is_recognised(tmp_path: Path) -> None:
    found = places()
    collection = read(written(tmp_path, found))
    assert (collection.name, collection.task, collection.modalities) == ("IEMOCAP_features", "classification", DIMS)
    assert collection.classes == ("happy", "sad", "neutral", "angry", "excited", "frustrated")
    assert list(collection.splits) == ["train", "valid", "test"]
    test = collection.splits["test"]
    assert test.ids.tolist() == [identifier for dialogue in TEST for identifier in found["ids"][dialogue]]
    assert test.labels.tolist() == [label for dialogue in TEST for label in found["labels"][dialogue]]
    assert set(test.groups) == set(TEST)
    for modality in DIMS:
        expected = np.concatenate([found[modality][dialogue] for dialogue in TEST]).astype(np.float32)
        np.testing.assert_array_equal(test.features[modality], expected)


@pytest.mark.parametrize("protocol", [0, 1, 2])
def test_what_python_2_wrote_is_the_same_data(protocol: int, tmp_path: Path) -> None:
    found = places()
    file = tmp_path / "IEMOCAP_features_raw.pkl"
    file.write_bytes(python2_dumps(tuple(found[name] for name in NINE), protocol))
    old, new = read(file), read(written(tmp_path, found))
    for split in ("train", "valid", "test"):
        np.testing.assert_array_equal(old.splits[split].ids, new.splits[split].ids)
        np.testing.assert_array_equal(old.splits[split].features["audio"], new.splits[split].features["audio"])


def test_the_valid_split_takes_whole_dialogues_from_train(tmp_path: Path) -> None:
    file = written(tmp_path, places())
    collection = read(file, "features.source.iemocap.valid_share=0.2")
    train, valid = (set(collection.splits[split].groups) for split in ("train", "valid"))
    assert valid
    assert train | valid == set(TRAIN)
    assert not train & valid
    assert len(collection.splits["valid"]) <= 0.2 * (len(collection.splits["train"]) + len(collection.splits["valid"]))
    assert collection.notes["valid"] == f"{len(valid)} dialogues carved out of train"
    other = read(file, "features.source.iemocap.valid_share=0.2", "features.seed=5")
    assert set(other.splits["valid"].groups) != valid


def test_the_whole_step_writes_the_same_set_twice(tmp_path: Path) -> None:
    params = load_params(None, settings(written(tmp_path, places()), "features.calibration.share=0.2"))
    summary = features.run(params, tmp_path / "a")
    features.run(params, tmp_path / "b")
    assert path_digest(tmp_path / "a") == path_digest(tmp_path / "b")
    assert summary.modalities == DIMS
    opened = FeatureSet.open(tmp_path / "a", verify=True)
    assert opened.manifest.classes[0] == "happy"
    groups = [set(opened.split(split).groups) for split in opened.manifest.splits]
    assert sum(map(len, groups)) == len(set().union(*groups)) == len(TRAIN + TEST)


def test_four_classes_are_the_first_four_emotions_and_other_data_keeps_its_numbers(tmp_path: Path) -> None:
    assert read(written(tmp_path, places(classes=4))).classes == ("happy", "sad", "neutral", "angry")
    assert read(written(tmp_path, places(classes=3))).classes == ("0", "1", "2")


def test_places_may_be_moved_left_out_and_of_other_types(tmp_path: Path) -> None:
    found = places()
    found["train"], found["test"] = list(TRAIN), np.array(TEST)
    found["text"] = {dialogue: np.array(vectors) for dialogue, vectors in found["text"].items()}
    found["audio"] = {dialogue: np.array(vectors).tolist() for dialogue, vectors in found["audio"].items()}
    found["labels"] = {dialogue: np.array(labels) for dialogue, labels in found["labels"].items()}
    found["speakers"] = {
        d: [[0, 1, 0] if s == "F" else [1, 0, 0] for s in names] for d, names in found["speakers"].items()
    }
    collection = read(written(tmp_path, found, "labels", "speakers", "text", "audio", "sentences", "train", "test"))
    assert collection.modalities == {"text": 6, "audio": 4}
    assert collection.notes["places"] == ["labels", "text", "audio", "train", "test"]
    assert collection.splits["test"].ids[0] == "Ses05F_impro01_000"


def test_labels_that_are_not_whole_are_regression(tmp_path: Path) -> None:
    found = places()
    found["labels"] = {dialogue: [label / 2 - 1.5 for label in labels] for dialogue, labels in found["labels"].items()}
    file = written(tmp_path, found)
    assert read(file).task == "regression"
    assert read(file).splits["test"].labels.dtype == np.float32
    with refused(DataError, key="labels", value="-1.5 to 1.0, 6 different ones"):
        read(file, "features.source.task=classification")


def test_what_cannot_be_told_apart_is_asked_for(tmp_path: Path) -> None:
    found = places() | {"valid": TRAIN[:2]}
    found["train"] = TRAIN[2:]
    found["text2"] = {dialogue: [2 * vector for vector in vectors] for dialogue, vectors in found["text"].items()}
    order = ["speakers", "labels", "text", "text2", "audio", "visual", "sentences", "train", "test", "valid"]
    file = written(tmp_path, found, *order)
    with refused(DataError, file=file, hint="features.source.iemocap.layout") as refusal:
        read(file)
    assert "1: labels, 2: vectors, 3: vectors, 4: vectors" in str(refusal.value)
    collection = read(file, f"features.source.iemocap.layout=[{', '.join(order)}]")
    assert collection.modalities == {"text": 6, "text2": 6, "audio": 4, "visual": 5}
    assert set(collection.splits["valid"].groups) == set(TRAIN[:2])
    chosen = read(
        file, f"features.source.iemocap.layout=[{', '.join(order)}]", "features.source.modalities=[audio, text2]"
    )
    assert list(chosen.modalities) == ["audio", "text2"]


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        ("[labels, train]", "names 2 places and the tuple has 9"),
        ("[ids, _, labels, text, audio, visual, _, _, test]", "no place is named train"),
        ("[ids, _, labels, text, text, visual, _, train, test]", "two places have the same name"),
        ("[ids, _, labels, _, _, _, _, train, test]", "no place is a modality"),
        ("[ids, _, labels, text, audio, visual, test, train, _]", "the place of test holds no list or set"),
        ("[ids, _, labels, text, audio, visual, _, train, extra]", "no place is named test"),
        ("[ids, labels, text, _, _, _, _, train, test]", "labels of the dialogue .* must be a list of numbers"),
    ],
)
def test_a_wrong_layout_is_named(layout: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=problem):
        read(written(tmp_path, places()), f"features.source.iemocap.layout={layout}")


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (
            lambda f: f["audio"][TEST[0]].pop(),
            "the dialogue Ses05F_impro01 has 8 labels and 7 of audio",
        ),
        (lambda f: f["ids"][TEST[0]].pop(), "labels and .* of ids"),
        (lambda f: f["text"].pop(TEST[0]), "text of the dialogue Ses05F_impro01 must be vectors of one length"),
        (lambda f: f["text"][TEST[0]].append(np.ones(7)), "must be vectors of one length"),
        (lambda f: f["text"].update({TEST[1]: [np.ones(7)] * 9}), "the dimension of text differs between dialogues"),
        (lambda f: f["visual"][TEST[0]].__setitem__(1, [1.0, [2.0]]), "must be a list of numbers"),
    ],
)
def test_what_is_wrong_in_a_dialogue_is_named(wrong: Any, problem: str, tmp_path: Path) -> None:
    found = places()
    wrong(found)
    with refused(DataError, match=problem, file=tmp_path / "IEMOCAP_features.pkl") as refusal:
        read(written(tmp_path, found))
    assert refusal.value.hint


def test_a_dialogue_without_labels_is_named(tmp_path: Path) -> None:
    found = places()
    del found["labels"][TEST[1]]
    with refused(DataError, key="test", value=TEST[1]):
        read(written(tmp_path, found))


def test_dialogues_in_no_split_are_noted_and_in_two_are_refused(tmp_path: Path) -> None:
    found = places()
    found["train"].discard(TRAIN[0])
    assert read(written(tmp_path, found)).notes["dialogues in no split"] == 1
    found["test"].add(TRAIN[1])
    with refused(DataError, key="train_ids", value=f"{TRAIN[1]}_F000"):
        features.run(load_params(None, settings(written(tmp_path, found))), tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_train_needs_enough_dialogues_for_a_valid_split(tmp_path: Path) -> None:
    with refused(DataError, key="features.source.iemocap.valid_share"):
        read(written(tmp_path, places()), "features.source.iemocap.valid_share=0.01")


def test_another_pickle_is_refused(tmp_path: Path) -> None:
    with refused(DataError, key="features.source.kind", file=tmp_path / "d.pkl"):
        read(write(tmp_path / "d.pkl", {"train": {}}))
    with refused(DataError, value="0: unknown, 1: unknown, 2: empty"):
        read(write(tmp_path / "d.pkl", (1, [2], {"a": None})))

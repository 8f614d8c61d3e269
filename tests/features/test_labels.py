"""Labels: scores, and classes with names."""

from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.labels import with_labels
from mbd.features.rows import Rows
from mbd.tensors import Array

FILE = Path("talks.csv")


def splits(train: Array, test: Array) -> dict[str, Rows]:
    return {
        name: Rows.of([f"{name}_{n}" for n in range(len(labels))], labels, {"text": np.ones((len(labels), 2))})
        for name, labels in {"train": train, "test": test}.items()
    }


def test_texts_are_classes_in_alphabetical_order() -> None:
    labelled, task, classes, _ = with_labels(FILE, splits(np.array(["sad", "glad"]), np.array(["sad"])), None)
    assert (task, classes) == ("classification", ("glad", "sad"))
    assert labelled["train"].labels.tolist() == [1, 0]
    assert labelled["test"].labels.tolist() == [1]


def test_classes_numbered_from_one_are_numbered_again_and_noted() -> None:
    labelled, _, classes, notes = with_labels(FILE, splits(np.array([1, 2, 4]), np.array([2])), None)
    assert classes == ("1", "2", "4")
    assert labelled["train"].labels.tolist() == [0, 1, 2]
    assert notes["classes"] == "numbered 1 to 4 in the file, 0 to 2 here"
    assert notes["class numbers that no row has"] == [3]


def test_a_class_without_a_training_row_is_noted() -> None:
    assert with_labels(FILE, splits(np.array([0, 1]), np.array([2])), None)[3] == {
        "classes without a training row": ["2"]
    }


def test_known_names_of_classes_are_used() -> None:
    assert with_labels(FILE, splits(np.array([0, 1]), np.array([0])), None, {0: "no", 1: "yes"})[2] == ("no", "yes")


@pytest.mark.parametrize(
    ("labels", "task", "problem"),
    [
        (np.array(["sad", "glad"]), "regression", "texts, not scores"),
        (np.array([0.5, 1.0]), "classification", "texts or whole numbers"),
        (np.array([f"word{n}" for n in range(1001)]), None, "1000 at the most"),
    ],
)
def test_labels_that_do_not_fit_the_task_are_refused(labels: Array, task: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        with_labels(FILE, splits(labels, labels[:1]), task)  # type: ignore[arg-type]

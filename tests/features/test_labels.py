"""Labels: scores, and classes with names."""

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.rows import Rows
from mbd.features.sources import labelled
from mbd.tensors import Array


def splits(train: Array, test: Array) -> dict[str, Rows]:
    return {
        name: Rows.of([f"{name}_{n}" for n in range(len(labels))], labels, {"text": np.ones((len(labels), 2))})
        for name, labels in {"train": train, "test": test}.items()
    }


def test_texts_are_classes_in_alphabetical_order() -> None:
    talks = labelled("talks", splits(np.array(["sad", "glad"]), np.array(["sad"])), None, notes={})
    assert (talks.task, talks.classes) == ("classification", ("glad", "sad"))
    assert talks.splits["train"].labels.tolist() == [1, 0]
    assert talks.splits["test"].labels.tolist() == [1]


def test_classes_numbered_from_one_are_numbered_again_and_noted() -> None:
    talks = labelled("talks", splits(np.array([1, 2, 4]), np.array([2])), None, notes={})
    assert talks.classes == ("1", "2", "4")
    assert talks.splits["train"].labels.tolist() == [0, 1, 2]
    assert talks.notes["classes"] == "numbered 1 to 4 in the file, 0 to 2 here"
    assert talks.notes["class numbers that no row has"] == [3]


def test_a_class_without_a_training_row_is_noted() -> None:
    assert labelled("talks", splits(np.array([0, 1]), np.array([2])), None, notes={}).notes == {
        "classes without a training row": ["2"]
    }


def test_known_names_of_classes_are_used() -> None:
    talks = splits(np.array([0, 1]), np.array([0]))
    assert labelled("talks", talks, None, {0: "no", 1: "yes"}, notes={}).classes == ("no", "yes")


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
        labelled("talks", splits(labels, labels[:1]), task, notes={})  # type: ignore[arg-type]

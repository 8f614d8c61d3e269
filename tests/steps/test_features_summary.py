"""The first look at feature data."""

import csv
import io

import numpy as np
import pytest

from mbd.steps.features import availability, label_histogram, label_statistics
from tests.features.build import small_collection


@pytest.mark.parametrize("classes", [0, 4])
def test_the_histogram_has_a_column_for_each_split_that_adds_up(classes: int) -> None:
    table = list(csv.DictReader(io.StringIO(label_histogram(small_collection(classes), (-3, 3)))))
    assert len(table) == (classes or 13)
    for split in ("train", "valid", "test"):
        assert sum(float(line[split]) for line in table) == pytest.approx(1, abs=0.01)


def test_regression_labels_are_described_and_classes_are_counted() -> None:
    collection = small_collection()
    labels = collection.splits["train"].labels
    assert label_statistics(collection)["train"]["mean"] == pytest.approx(labels.mean(), abs=1e-3)
    assert label_statistics(small_collection(4))["train"] == {"c0": 6, "c1": 6, "c2": 6, "c3": 6}


def test_availability_is_a_percentage_of_rows() -> None:
    collection = small_collection()
    collection.splits["test"].available["audio"][:2] = False
    assert availability(collection)["test"] == {"text": 100.0, "audio": 75.0, "visual": 100.0}
    assert np.all(list(availability(collection)["train"].values()))

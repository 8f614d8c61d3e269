"""Sums for all tags in one pass: bit for bit those of each tag alone, and given up where they do not pay."""

from itertools import combinations

import numpy as np
import pytest

from mbd.blocks import Columns
from mbd.formats.model import Tag
from mbd.model.coordinates import on_grid
from mbd.tensors import Array
from mbd.training.lattice import ridge
from mbd.training.lattice.ridge import PatternSums, grams

WIDTHS = {"a": 3, "b": 2, "c": 4}
TAGS: list[Tag] = [tag for size in (1, 2, 3) for tag in combinations(WIDTHS, size)]


def rows() -> tuple[dict[str, Array], dict[str, Array], Array, Array]:
    draw = np.random.default_rng(0)
    points = {m: on_grid(draw.standard_normal((90, width))).astype(np.float32) for m, width in WIDTHS.items()}
    available = {m: draw.random(90) < 0.7 for m in WIDTHS}
    return points, available, on_grid(draw.standard_normal((90, 2))), draw.integers(0, 4, 90)


def summed(tags: list[Tag]) -> PatternSums | None:
    return PatternSums.of(*rows(), tags)


@pytest.mark.parametrize("tag", TAGS, ids="+".join)
def test_the_sums_of_a_tag_are_those_of_its_rows(tag: Tag) -> None:
    points, available, targets, folds = rows()
    there = np.flatnonzero(np.all([available[m] for m in tag], axis=0))
    groups = [folds[there] == fold for fold in np.unique(folds[there])]
    alone = grams(Columns(tuple(points[m] for m in tag), there), targets[there], groups)
    together = summed(TAGS)
    assert together is not None
    assert [gram.tobytes() for gram in together.of_tag(tag)] == [gram.tobytes() for gram in alone]


def test_only_patterns_that_occur_and_are_needed_are_kept() -> None:
    found = summed([tag for tag in TAGS if "a" in tag])
    assert found is not None
    assert set(found.grams) == {("a",), ("a", "b"), ("a", "c"), ("a", "b", "c")}


def test_each_tag_is_summed_alone_where_that_is_less_work_or_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert summed([("b",)]) is None
    monkeypatch.setattr(ridge, "_MOST_MODALITIES", 2)
    assert summed(TAGS) is None
    monkeypatch.undo()
    monkeypatch.setattr(ridge, "_MOST_BYTES", 1000)
    assert summed(TAGS) is None

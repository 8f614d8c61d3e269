"""Groups stay together, and the calibration split is carved out of train."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import DataError, UsageError
from mbd.features.splits import carve, groups_from_ids, with_calibration, with_groups_from_ids
from mbd.params.features import CalibrationSettings, SourceSettings
from tests.features.build import small_collection, small_rows
from tests.refusals import refused

PATTERN = SourceSettings().group_pattern


@pytest.mark.parametrize(
    ("identifier", "group"),
    [
        ("1DmNV9C1hbY_10", "1DmNV9C1hbY"),
        ("6_0THN4chvY_1", "6_0THN4chvY"),
        ("video$_$12", "video"),
        ("lone", "lone"),
        ("_a_", "_a_"),
    ],
)
def test_the_video_is_the_part_before_the_last_number(identifier: str, group: str) -> None:
    assert list(groups_from_ids(np.array([identifier]), PATTERN)) == [group]


def test_a_pattern_that_puts_all_rows_together_is_no_grouping() -> None:
    rows = small_rows("x", 4)
    splits = {"train": rows.take(np.arange(2)), "test": rows.take(np.arange(2, 4))}
    renamed = with_groups_from_ids(splits, r"^(x).*$")
    assert renamed["train"].groups.tolist() == splits["train"].groups.tolist()


@pytest.mark.parametrize("pattern", ["(", "^.*$", "(a)(b)"])
def test_a_useless_pattern_is_refused(pattern: str) -> None:
    with refused(UsageError, key="features.source.group_pattern"):
        groups_from_ids(np.array(["a"]), pattern)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(0, 60), st.integers(0, 1000))
def test_carving_takes_whole_groups_and_never_too_much(n: int, size: int, seed: int) -> None:
    rows = small_rows("train", n)
    stays, taken = carve(rows, size, seed, "test")
    assert len(taken) <= size
    assert len(stays) + len(taken) == n
    assert not set(stays.groups) & set(taken.groups)
    if size >= n:
        assert len(taken) == n


def test_the_request_is_capped_by_the_share() -> None:
    collection = with_calibration(small_collection(), CalibrationSettings(size=5000, share=0.5), seed=0)
    assert len(collection.splits["calibration"]) == 12
    assert len(collection.splits["train"]) == 12


def test_the_carving_does_not_look_at_features() -> None:
    one, other = small_collection(), small_collection(dims={"smell": 7, "touch": 2})
    chosen = [with_calibration(c, CalibrationSettings(share=0.4), 5).splits["calibration"] for c in (one, other)]
    assert len(chosen[0]) == 8
    np.testing.assert_array_equal(chosen[0].ids, chosen[1].ids)


def test_a_source_with_its_own_calibration_split_keeps_it() -> None:
    collection = with_calibration(small_collection(), CalibrationSettings(share=0.5), 0)
    assert with_calibration(collection, CalibrationSettings(share=0.5), 1) is collection


def test_going_without_is_a_choice() -> None:
    assert "calibration" not in with_calibration(small_collection(), CalibrationSettings(size=0), 0).splits


def test_small_data_gives_up_one_group_at_least() -> None:
    assert len(with_calibration(small_collection(), CalibrationSettings(share=0.1), 0).splits["calibration"]) == 4


def test_groups_too_large_for_any_calibration_are_an_error() -> None:
    collection = small_collection()
    train = replace(collection.splits["train"], groups=np.full(24, "one"))
    collection = replace(collection, splits={**collection.splits, "train": train})
    with refused(DataError, key="features.calibration.share"):
        with_calibration(collection, CalibrationSettings(), 0)

"""A FeatureSet without recordings of persons holds nothing of them, and everything else as it was."""

from pathlib import Path

import numpy as np
import pytest

from mbd.features.contract import FeatureSet
from mbd.features.leave_out import leave_out
from mbd.features.rows import Rows
from tests.features.build import synthetic_set


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "features"
    synthetic_set(folder)
    return folder


def rows_of(folder: Path, split: str) -> Rows:
    return FeatureSet.open(folder, verify=True).split(split).load()


def person_in(folder: Path, split: str) -> str:
    return str(rows_of(folder, split).groups[0])


@pytest.mark.parametrize("split", ["train", "valid", "test", "calibration"])
def test_nothing_of_a_persons_modality_is_left_in_any_split(data: Path, split: str, tmp_path: Path) -> None:
    person, before = person_in(data, split), rows_of(data, split)
    count = leave_out(data, tmp_path, {"audio": {person}})
    after, theirs = rows_of(tmp_path, split), before.groups == person
    assert count >= int((theirs & before.available["audio"]).sum()) > 0
    assert not after.available["audio"][after.groups == person].any()
    assert not np.any(after.features["audio"][after.groups == person])
    others = after.groups != person
    assert np.array_equal(after.features["audio"][others], before.features["audio"][~theirs])
    assert np.array_equal(after.features["text"][others], before.features["text"][~theirs])


def test_files_that_hold_nothing_of_the_person_keep_their_digests(data: Path, tmp_path: Path) -> None:
    leave_out(data, tmp_path, {"audio": {person_in(data, "train")}})
    before, after = FeatureSet.open(data).digests(), FeatureSet.open(tmp_path).digests()
    assert [name for name in before if before[name] != after[name]] == ["splits/train/audio.safetensors"]


def test_a_row_stays_without_any_modality_whatever_else_is_not_read(data: Path, tmp_path: Path) -> None:
    person = person_in(data, "train")
    everything = {key: {person} for key in FeatureSet.open(data).modalities}
    for name, without in {"all": (), "two": ("text",)}.items():
        (tmp_path / name).mkdir()
        leave_out(data, tmp_path / name, everything, without)
    rows = rows_of(tmp_path / "all", "train")
    assert np.array_equal(rows.ids, rows_of(data, "train").ids)
    assert not np.any([bits[rows.groups == person] for bits in rows.available.values()])
    two = FeatureSet.open(tmp_path / "two", without=("text",)).digests()
    assert two.items() <= FeatureSet.open(tmp_path / "all").digests().items()


def test_a_person_without_recordings_changes_nothing(data: Path, tmp_path: Path) -> None:
    assert leave_out(data, tmp_path, {"audio": {"somebody else"}}) == 0
    assert FeatureSet.open(tmp_path).digests() == FeatureSet.open(data).digests()

"""The FeatureSet: what is written comes back, one modality at a time, and damage is seen."""

from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.contract import FeatureSet, write_manifest, write_splits
from mbd.features.rows import Collection
from mbd.formats.features import CalibrationEntry
from tests.digests import path_digest
from tests.features.build import DIMS, small_collection
from tests.refusals import refused, refused_as_changed, refused_as_unreadable


def write(folder: Path, collection: Collection) -> FeatureSet:
    folder.mkdir()
    calibration = CalibrationEntry(requested=0, used=0, carved_from=None)
    digests = write_splits(folder, collection)
    write_manifest(folder, collection, digests, label_range=(-3, 3), calibration=calibration, provenance={})
    return FeatureSet.open(folder, verify=True)


@pytest.mark.parametrize("classes", [0, 4])
def test_rows_come_back_as_they_were(tmp_path: Path, classes: int) -> None:
    collection = small_collection(classes)
    collection.splits["train"].available["audio"][3] = False
    opened = write(tmp_path / "set", collection)
    assert opened.modalities == DIMS
    for name, rows in collection.splits.items():
        back = opened.split(name).load()
        for field in ("ids", "groups", "labels"):
            np.testing.assert_array_equal(getattr(back, field), getattr(rows, field))
        for m in DIMS:
            np.testing.assert_array_equal(back.features[m], rows.features[m])
            np.testing.assert_array_equal(back.available[m], rows.available[m])


def test_a_batch_reads_just_its_rows(tmp_path: Path) -> None:
    opened = write(tmp_path / "set", small_collection())
    batch = opened.split("train").take(np.array([5, 2, 7]))
    assert list(batch.ids) == ["train1_1", "train0_2", "train1_3"]
    assert not opened.split("train").features["text"].flags.owndata


def test_the_same_data_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name, small_collection())
    assert path_digest(tmp_path / "a") == path_digest(tmp_path / "b")


def test_ids_may_be_in_any_script(tmp_path: Path) -> None:
    collection = small_collection()
    collection.splits["valid"].ids[0] = "視频_ü"[: collection.splits["valid"].ids.dtype.itemsize // 4]
    opened = write(tmp_path / "set", collection)
    np.testing.assert_array_equal(opened.split("valid").ids, collection.splits["valid"].ids)


def test_a_modality_left_out_is_never_opened(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", small_collection()).folder
    for file in folder.rglob("audio.safetensors"):
        file.unlink()
    opened = FeatureSet.open(folder, without=("audio",), verify=True)
    assert set(opened.split("train").load().features) == {"text", "visual"}
    assert not any("audio" in name for name in opened.digests())


def test_a_modality_that_is_not_there_cannot_be_left_out(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", small_collection()).folder
    with pytest.raises(DataError, match="no modality 'smell'"):
        FeatureSet.open(folder, without=("smell",))


def test_one_changed_bit_is_seen_on_request(tmp_path: Path) -> None:
    folder = write(tmp_path / "set", small_collection()).folder
    file = folder / "splits/test/visual.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    FeatureSet.open(folder)
    with refused_as_changed(file):
        FeatureSet.open(folder, verify=True)


def test_a_folder_that_is_no_feature_set_is_named(tmp_path: Path) -> None:
    with refused_as_unreadable(tmp_path / "manifest.json"):
        FeatureSet.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": "something else"}')
    with refused(DataError, key="format", file=tmp_path / "manifest.json"):
        FeatureSet.open(tmp_path)


def test_an_unknown_split_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="train, valid, test"):
        write(tmp_path / "set", small_collection()).split("dev")


@pytest.mark.parametrize(
    ("honest", "hostile"),
    [('"audio": ', '"../../audio": '), ('"splits/train/', '"../splits/train/'), ('"train": {', '"/train": {')],
)
def test_a_manifest_with_unsafe_names_is_refused(tmp_path: Path, honest: str, hostile: str) -> None:
    folder = write(tmp_path / "set", small_collection()).folder
    manifest = folder / "manifest.json"
    assert honest in manifest.read_text()
    manifest.write_text(manifest.read_text().replace(honest, hostile))
    with pytest.raises(DataError, match="not a valid"):
        FeatureSet.open(folder)

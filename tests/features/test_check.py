"""Every kind of bad data has an error of its own, and no output folder is left behind."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.params import load_params
from mbd.steps import features
from mbd.tensors import Array
from tests.features.build import npz_arrays, small_collection, write_npz
from tests.refusals import refused

Arrays = dict[str, Array]


def dims_differ_between_splits(arrays: Arrays) -> None:
    arrays["test_audio"] = arrays["test_audio"][:, :2]


def duplicate_ids(arrays: Arrays) -> None:
    arrays["train_ids"][1] = arrays["train_ids"][0]


def label_out_of_range(arrays: Arrays) -> None:
    arrays["valid_labels"][2] = 3.5


def label_is_nan(arrays: Arrays) -> None:
    arrays["valid_labels"][2] = np.nan


def nan_in_features(arrays: Arrays) -> None:
    arrays["train_text"][7, 1] = np.nan


def infinity_in_features(arrays: Arrays) -> None:
    arrays["train_text"][7, 1] = -np.inf


def missing_modality_in_a_split(arrays: Arrays) -> None:
    del arrays["test_visual"]


def only_one_modality(arrays: Arrays) -> None:
    for key in [k for k in arrays if k.endswith(("visual", "audio"))]:
        del arrays[key]


def missing_labels(arrays: Arrays) -> None:
    del arrays["test_labels"]


def missing_split(arrays: Arrays) -> None:
    for key in [k for k in arrays if k.startswith("valid")]:
        del arrays[key]


def empty_split(arrays: Arrays) -> None:
    for key in [k for k in arrays if k.startswith("valid")]:
        arrays[key] = arrays[key][:0]


def overlapping_groups(arrays: Arrays) -> None:
    arrays["test_ids"] = np.array(["train0_99", *arrays["test_ids"][1:]])


def same_row_in_two_splits(arrays: Arrays) -> None:
    arrays["test_ids"] = np.array([arrays["train_ids"][0], *arrays["test_ids"][1:]])


def fewer_labels_than_rows(arrays: Arrays) -> None:
    arrays["train_labels"] = arrays["train_labels"][:-1]


def fewer_feature_rows_than_ids(arrays: Arrays) -> None:
    arrays["train_audio"] = arrays["train_audio"][:-1]


def empty_id(arrays: Arrays) -> None:
    arrays["train_ids"][0] = ""


def row_without_any_modality(arrays: Arrays) -> None:
    for m in ("text", "audio", "visual"):
        arrays[f"train_{m}_available"] = np.arange(24) != 5


CASES = [
    (dims_differ_between_splits, "dimension of audio differs", "test_audio"),
    (duplicate_ids, "more than once", "train_ids"),
    (label_out_of_range, r"outside -3 … 3", "valid_labels"),
    (label_is_nan, "label is NaN", "valid_labels"),
    (nan_in_features, "NaN or infinite", "train_text"),
    (infinity_in_features, "NaN or infinite", "train_text"),
    (missing_modality_in_a_split, "test_visual is missing", "test_visual"),
    (only_one_modality, "at least two modalities", None),
    (missing_labels, "test_labels is missing", "test_labels"),
    (missing_split, "split valid is missing", None),
    (empty_split, "split valid is empty", "valid"),
    (overlapping_groups, "share 1 group", "train_groups"),
    (same_row_in_two_splits, "share 1 id", "train_ids"),
    (fewer_labels_than_rows, "as many labels as ids", "train_labels"),
    (fewer_feature_rows_than_ids, "as many feature rows as ids", "train_audio"),
    (empty_id, "id is empty", "train_ids"),
    (row_without_any_modality, "no modality at all", "train"),
]


@pytest.mark.parametrize(("spoil", "problem", "key"), CASES, ids=lambda case: getattr(case, "__name__", ""))
def test_bad_data_is_named_and_nothing_is_written(
    tmp_path: Path, spoil: Callable[[Arrays], None], problem: str, key: str | None
) -> None:
    arrays = {name: array.copy() for name, array in npz_arrays(small_collection()).items()}
    spoil(arrays)
    file = write_npz(tmp_path / "data.npz", arrays)
    params = load_params(
        None, ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.share=0.5"]
    )
    with refused(DataError, match=problem, key=key, file=file):
        features.run(params, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("keep", [0, 100, 0.5, 0.99])
def test_a_truncated_file_is_named_and_nothing_is_written(tmp_path: Path, keep: float) -> None:
    file = write_npz(tmp_path / "data.npz", npz_arrays(small_collection()))
    data = file.read_bytes()
    file.write_bytes(data[: int(keep if keep > 1 else keep * len(data))])
    params = load_params(None, ["features.source.kind=npz", f"features.source.path={file}"])
    with refused(DataError, file=file):
        features.run(params, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [file]

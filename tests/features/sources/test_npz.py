"""Source npz: arrays by name."""

import resource
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.features.rows import Collection
from mbd.features.sources import read_source
from mbd.params import load_params
from mbd.steps import features
from tests.features.build import npz_arrays, small_collection, write_npz
from tests.refusals import refused

SPLITS = ("train", "valid", "test")


def read(path: Path, *settings: str) -> Collection:
    return read_source(
        load_params(None, ["features.source.kind=npz", f"features.source.path={path}", *settings]).features
    )


def refused_as_no_archive(file: Path, why: str = "") -> "pytest.RaisesExc[DataError]":
    """Return what expects that a file is no archive of arrays, or not a whole one."""
    return refused(DataError, match=rf"not an \.npz archive.*{why}", file=file)


def test_what_numpy_saved_is_read(tmp_path: Path) -> None:
    expected = small_collection()
    collection = read(write_npz(tmp_path / "d.npz", npz_arrays(expected)))
    assert (collection.name, collection.task, collection.modalities) == ("d", "regression", expected.modalities)
    np.testing.assert_array_equal(
        collection.splits["test"].features["audio"], expected.splits["test"].features["audio"]
    )
    np.testing.assert_array_equal(collection.splits["test"].groups, expected.splits["test"].groups)


def test_a_compressed_archive_is_read_as_well(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", **npz_arrays(small_collection()))  # type: ignore[arg-type]
    plain = read(write_npz(tmp_path / "plain.npz", npz_arrays(small_collection()))).splits["train"]
    np.testing.assert_array_equal(read(tmp_path / "d.npz").splits["train"].features["text"], plain.features["text"])


def test_a_small_archive_that_inflates_to_a_huge_one_is_refused_unread(tmp_path: Path) -> None:
    row = np.lib.format.magic(1, 0)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (71303168, 1)}"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train_text.npy", "w", force_zip64=True) as stream,
    ):
        stream.write(row + len(header).to_bytes(2, "little") + header)
        for _ in range(17):
            stream.write(bytes(16 << 20))
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refused(DataError, hint="numpy.savez_compressed"):
        read(tmp_path / "bomb.npz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


ODD_HEADERS = {
    "nested": b"(" * 5000,
    "not a literal": b"{'descr': open('x'), 'fortran_order': False, 'shape': (1, 1)}",
    "unfinished": b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, ",
    "negative": b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 1)}",
    "another type": b"{'descr': 'zzz', 'fortran_order': False, 'shape': (1, 1)}",
    "a number": b"7",
}


@pytest.mark.parametrize("what", ODD_HEADERS)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_odd_header_is_bad_data(tmp_path: Path, what: str, compression: int) -> None:
    header = ODD_HEADERS[what]
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    entry = np.lib.format.magic(1, 0) + len(header).to_bytes(2, "little") + header + bytes(4)
    with zipfile.ZipFile(tmp_path / "odd.npz", "w", compression) as archive:
        archive.writestr("train_text.npy", entry)
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "odd.npz")


def test_an_entry_that_the_archive_names_twice_differently_is_bad_data(tmp_path: Path) -> None:
    """The directory and the entry itself disagree: other readers would refuse the file, or see another array."""
    path = write_npz(tmp_path / "d.npz", npz_arrays(small_collection()))
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("train_labels.npy").header_offset + 30
    content = bytearray(path.read_bytes())
    content[at : at + 5] = b"other"
    path.write_bytes(content)
    with refused_as_no_archive(path, r"header .*other_labels.* differ"):
        read(path)


def test_an_entry_longer_than_the_file_is_bad_data(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "d.npz", **npz_arrays(small_collection()))  # type: ignore[arg-type]
    content = bytearray((tmp_path / "d.npz").read_bytes())
    at = content.rindex(b"PK\1\2") + 20  # the compressed size, in the directory
    content[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    (tmp_path / "d.npz").write_bytes(content)
    with refused_as_no_archive(tmp_path / "d.npz", r"\.npy is longer than the file"):
        read(tmp_path / "d.npz")


def test_whole_numbers_are_classes_unless_the_parameters_say_otherwise(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "d.npz", npz_arrays(small_collection(classes=3)))
    assert read(file).classes == ("0", "1", "2")
    assert read(file, "features.source.task=regression").splits["train"].labels.dtype == np.float32


def test_groups_availability_and_attributes_are_taken_where_they_are_given(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    for split, n in (("train", 24), ("valid", 8), ("test", 8)):
        arrays[f"{split}_groups"] = np.array([f"{split}-speaker"] * n)
        arrays[f"{split}_audio_available"] = np.arange(n) % 2 == 0
        arrays[f"{split}_audio_attribute"] = np.arange(n) % 2
    rows = read(write_npz(tmp_path / "d.npz", arrays)).splits["train"]
    assert set(rows.groups) == {"train-speaker"}
    assert rows.available["audio"].sum() == 12
    assert rows.available["text"].all()
    assert rows.attributes["audio"].sum() == 12


@pytest.mark.parametrize("alias", ["val", "dev"])
def test_other_names_of_the_valid_split_are_understood(tmp_path: Path, alias: str) -> None:
    arrays = {k.replace("valid_", f"{alias}_"): v for k, v in npz_arrays(small_collection()).items()}
    assert set(read(write_npz(tmp_path / "d.npz", arrays)).splits) == {"train", "valid", "test"}


def test_a_variant_is_taken_only_when_asked_for(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    arrays |= {f"{split}_text_lsa": arrays[f"{split}_text"][:, :2] for split in ("train", "valid", "test")}
    file = write_npz(tmp_path / "d.npz", arrays)
    default = read(file)
    assert "text_lsa" not in default.modalities
    assert default.notes == {"variants not used": ["text_lsa"]}
    assert read(file, "features.source.modalities=[text_lsa, audio]").modalities == {"text_lsa": 2, "audio": 3}


def test_a_modality_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "d.npz", npz_arrays(small_collection()))
    with refused(DataError, key="features.source.modalities", file=file, hint="text, audio, visual"):
        read(file, "features.source.modalities=[text, smell]")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_objects_are_not_read_and_the_array_is_named(tmp_path: Path, save: Callable[..., None]) -> None:
    arrays = npz_arrays(small_collection())
    arrays["train_ids"] = arrays["train_ids"].astype(object)
    save(tmp_path / "d.npz", **arrays)
    with refused(DataError, key="train_ids", value=None):
        read(tmp_path / "d.npz")


def test_a_file_with_other_names_is_told_how_to_name_its_arrays(tmp_path: Path) -> None:
    with refused(DataError, value="X, y", hint="train_text"):
        read(write_npz(tmp_path / "d.npz", {"X": np.ones((3, 2)), "y": np.ones(3)}))


def test_an_array_of_five_dimensions_is_refused_and_not_left_out_silently(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    arrays |= {f"{split}_audio": arrays[f"{split}_audio"][:, :, None, None, None] for split in SPLITS}
    file = write_npz(tmp_path / "d.npz", arrays)
    with refused(DataError, key="train_audio", value=(24, 3, 1, 1, 1)):
        read(file)
    assert read(file, "features.source.modalities=[text, visual]").modalities == {"text": 5, "visual": 4}


def test_arrays_that_are_no_modality_are_noted(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    arrays |= {f"{split}_transcript": arrays[f"{split}_ids"] for split in SPLITS}
    assert read(write_npz(tmp_path / "d.npz", arrays)).notes == {"arrays not used": ["transcript"]}


def test_texts_as_features_are_refused(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    arrays["train_text"] = np.full(arrays["train_text"].shape, "happy")
    with refused(DataError, key="train_text", value=["happy"]):
        read(write_npz(tmp_path / "d.npz", arrays))


def test_texts_as_labels_are_classes_if_all_of_them_are_texts(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    texts = {f"{split}_labels": np.where(arrays[f"{split}_labels"] > 0, "glad", "sad") for split in SPLITS}
    assert read(write_npz(tmp_path / "d.npz", arrays | texts)).classes == ("glad", "sad")
    with refused(DataError, key="labels", value=None):
        read(write_npz(tmp_path / "d.npz", arrays | {"train_labels": texts["train_labels"]}))


def test_scores_that_look_like_classes_are_noted(tmp_path: Path) -> None:
    arrays = npz_arrays(small_collection())
    arrays |= {f"{split}_labels": np.abs(arrays[f"{split}_labels"].round()) for split in SPLITS}
    file = write_npz(tmp_path / "d.npz", arrays)
    assert "features.source.task=classification" in read(file).notes["labels"]
    assert "labels" not in read(file, "features.source.task=regression").notes


def test_a_missing_file_or_another_format_is_named(tmp_path: Path) -> None:
    with refused(DataError, key="features.source.path", file=tmp_path / "none.npz"):
        read(tmp_path / "none.npz")
    np.save(tmp_path / "single.npy", np.ones(3))
    with refused_as_no_archive(tmp_path / "single.npy"):
        read(tmp_path / "single.npy")


@pytest.mark.real_data
def test_real_mosi_comes_in_whole_and_ridge_is_where_others_found_it(tmp_path: Path, real_mosi: Path) -> None:
    settings = ["features.source.kind=npz", f"features.source.path={real_mosi}", "features.calibration.size=0"]
    summary = features.run(load_params(None, settings), tmp_path / "set")
    assert summary.rows == {"train": 1207, "valid": 240, "test": 752}
    assert summary.modalities == {"text": 100, "audio": 73, "visual": 100}
    assert summary.ridge["all"]["acc2"] == pytest.approx(76.2, abs=1)
    assert summary.ridge["text"]["acc2"] == pytest.approx(75.0, abs=1)
    assert summary.ridge["all"]["corr"] == pytest.approx(0.624, abs=0.02)


@pytest.mark.parametrize("name", ["../../../outside", "/tmp/outside", "_rows", "text+visual", "line\nbreak", "full"])
def test_a_modality_with_an_unsafe_name_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    arrays = npz_arrays(small_collection())
    for split in SPLITS:
        arrays[f"{split}_{name}"] = arrays[f"{split}_audio"]
    file = write_npz(tmp_path / "d.npz", arrays)
    params = load_params(None, ["features.source.kind=npz", f"features.source.path={file}"])
    before = sorted(tmp_path.rglob("*"))
    with refused(DataError, file=file, value=repr(name)):
        features.run(params, tmp_path / "deep" / "er" / "out")
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and path.is_file()] == []

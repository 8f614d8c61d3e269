"""The step: the files that it writes, that two runs write the same, and the first look at the data."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from mbd.errors import DataError, UsageError
from mbd.features.availability import MANY_MODALITIES
from mbd.features.contract import FeatureSet
from mbd.features.corruption import corrupt, corrupted_rows
from mbd.files import file_digests, sha256_file
from mbd.params import load_params
from mbd.params.base import CorruptionSettings
from mbd.steps import features
from mbd.steps.features import availability, label_histogram, label_statistics
from tests.digests import path_digest
from tests.features.build import npz_arrays, small_collection, synthetic_set, write_npz
from tests.refusals import refused


def test_the_folder_holds_the_set_its_summary_and_how_it_came_about(tmp_path: Path) -> None:
    out = synthetic_set(tmp_path / "set")
    assert {p.name for p in out.iterdir()} == {
        "manifest.json",
        "splits",
        "summary.json",
        "metrics.json",
        "label_histogram.csv",
        "step.json",
    }
    record = json.loads((out / "step.json").read_text())
    assert record["step"] == "features"
    assert record["outputs"]["files"] == file_digests(out)
    assert record["outputs"]["digest"] == path_digest(out)
    assert record["parameters"]["features"]["source"]["synthetic"]["rows"]["train"] == 160
    assert {"mbd", "python", "numpy"} <= record["versions"].keys()
    assert record["duration_seconds"] > 0


def test_the_summary_counts_rows_and_groups_of_each_split(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "data.npz", npz_arrays(small_collection()))
    params = load_params(None, [f"features.source.path={file}", "features.calibration.share=0.5"])
    summary = features.run(params, tmp_path / "out")
    opened = FeatureSet.open(tmp_path / "out")
    assert summary.groups == {name: len(set(opened.split(name).load().groups)) for name in opened.manifest.splits}
    assert summary.to_text().splitlines()[2].split()[:3] == ["split", "rows", "groups"]


def test_the_same_parameters_give_the_same_bytes(tmp_path: Path) -> None:
    assert path_digest(synthetic_set(tmp_path / "a")) == path_digest(synthetic_set(tmp_path / "b"))
    assert path_digest(synthetic_set(tmp_path / "c", "features.seed=1")) != path_digest(tmp_path / "a")


def test_source_files_of_one_name_are_recorded_by_their_folders(tmp_path: Path) -> None:
    for split, rows in (("train", 8), ("valid", 4), ("test", 4)):
        (tmp_path / "table" / split).mkdir(parents=True)
        lines = [f"{split}-{k}_0,{k % 3}.5,{k},{k + 1},{2 * k},{k * k}" for k in range(rows)]
        text = "\n".join(["id,label,text_0,text_1,audio_0,audio_1", *lines])
        (tmp_path / "table" / split / "part.csv").write_text(text + "\n")
    features.run(load_params(None, [f"features.source.path={tmp_path}/table"]), tmp_path / "out")
    files = FeatureSet.open(tmp_path / "out").manifest.provenance["files"]
    names = [f"{split}/part.csv" for split in ("test", "train", "valid")]
    assert files == {name: sha256_file(tmp_path / "table" / name) for name in names}


def test_the_source_file_is_recorded_by_digest(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "data.npz", npz_arrays(small_collection()))
    settings = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.share=0.5"]
    features.run(load_params(None, settings), tmp_path / "out")
    record = json.loads((tmp_path / "out" / "step.json").read_text())
    assert record["inputs"] == {"source 0": {"path": str(file), "digest": sha256_file(file)}}
    manifest = FeatureSet.open(tmp_path / "out", verify=True).manifest
    assert manifest.provenance["files"] == {"data.npz": sha256_file(file)}
    assert (manifest.calibration.requested, manifest.calibration.used) == (5000, 12)
    assert manifest.calibration.carved_from == "train"


def write_set(folder: Path, kind: str, name: str, *settings: str) -> FeatureSet:
    """Write a FeatureSet of a synthetic source or of an .npz file."""
    if kind == "synthetic":
        synthetic_set(folder / name, *settings)
    else:
        file = write_npz(folder / "data.npz", npz_arrays(small_collection()))
        source = ["features.source.kind=npz", f"features.source.path={file}", "features.calibration.share=0.5"]
        features.run(load_params(None, [*source, *settings]), folder / name)
    return FeatureSet.open(folder / name, verify=True)


@pytest.mark.parametrize("kind", ["synthetic", "npz"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_damaged_twin_differs_in_the_chosen_rows_of_one_split(tmp_path: Path, kind: str, split: str) -> None:
    damage = [f"features.damage.split={split}", "features.damage.corruption.share=0.3"]
    clean, twin = write_set(tmp_path, kind, "clean"), write_set(tmp_path, kind, "twin", *damage)
    rows, damaged = clean.split(split).load(), twin.split(split).load()
    chosen = corrupted_rows(len(rows), 0.3, 0)
    assert chosen.sum() == round(0.3 * len(rows)) > 0
    expected = corrupt(rows, CorruptionSettings(share=0.3), 0)
    for modality, matrix in rows.features.items():
        assert (matrix != damaged.features[modality]).any(axis=1).tolist() == chosen.tolist()
        np.testing.assert_array_equal(damaged.features[modality], expected.features[modality])
    different = {name for name, digest in clean.digests().items() if twin.digests()[name] != digest}
    assert different == {f"splits/{split}/{modality}.safetensors" for modality in clean.modalities}
    strengths = {"snr_db": 10.0, "pepper": 0.05, "blur": 1.5, "typos": 0.1, "reorder": 3}
    said = {"split": split, "rows": int(chosen.sum()), "level": "features", "share": 0.3, **strengths}
    assert twin.manifest.provenance["notes"]["damage"] == said
    assert json.loads((tmp_path / "twin" / "summary.json").read_text())["notes"]["damage"] == said
    assert "damage" not in clean.manifest.provenance["notes"]
    write_set(tmp_path, kind, "again", *damage)
    assert path_digest(tmp_path / "again") == path_digest(tmp_path / "twin")


def test_train_and_calibration_rows_are_never_damaged() -> None:
    for split in ("train", "calibration"):
        with refused(UsageError, key="features.damage.split"):
            load_params(None, [f"features.damage.split={split}"])


def test_data_without_the_modality_to_revoke_are_refused_at_the_first_step(tmp_path: Path) -> None:
    file = write_npz(tmp_path / "data.npz", npz_arrays(small_collection()))
    params = load_params(None, [f"features.source.path={file}"])
    with refused(DataError, key="requests.modality", value="my voice") as caught:
        features.run(params, tmp_path / "out", to_revoke="my voice")
    assert all(modality in str(caught.value.hint) for modality in small_collection().modalities)
    assert not (tmp_path / "out").exists()


def test_many_modalities_are_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    names = ", ".join(f"m{n}: 2" for n in range(MANY_MODALITIES + 1))
    synthetic_set(tmp_path / "set", f"features.source.synthetic.dims={{{names}}}")
    assert "7 modalities have 127 sets" in caplog.text


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

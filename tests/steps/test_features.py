"""The step: what lies in the folder, and that it lies there twice the same."""

import json
from pathlib import Path

from mbd.features.contract import FeatureSet
from mbd.files import file_digests, path_digest, sha256_file
from mbd.params import load_params
from mbd.steps import features
from tests.features.build import npz_arrays, small_collection, synthetic_set, write_npz


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


def test_the_same_parameters_give_the_same_bytes(tmp_path: Path) -> None:
    assert path_digest(synthetic_set(tmp_path / "a")) == path_digest(synthetic_set(tmp_path / "b"))
    assert path_digest(synthetic_set(tmp_path / "c", "features.seed=1")) != path_digest(tmp_path / "a")


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

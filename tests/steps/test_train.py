"""The step `train`: a model folder that says what it was made from, whatever the backbone."""

import csv
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mbd import load
from mbd.errors import UsageError
from mbd.evaluation.metrics import task_metrics
from mbd.features.contract import FeatureSet
from mbd.files import read_json
from mbd.params import Params, load_params
from mbd.steps import train
from tests.digests import path_digest
from tests.refusals import refused, refused_as_changed, refused_as_no_modality
from tests.training.build import SMALL, joint_data

JOINT = load_params(None, SMALL)
LATTICE = load_params(None, ["model.backbone=lattice", "model.lattice.components=4", "model.lattice.landmarks=8"])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return joint_data(tmp_path_factory.mktemp("train") / "set")


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("train") / "model"
    train.run(JOINT, data, out)
    return out


def test_the_folder_holds_the_model_its_metrics_and_its_history(data: Path, model: Path) -> None:
    assert {p.name for p in model.iterdir()} == {
        *("model.safetensors", "model.json", "metrics.json", "history.csv", "live", "step.json")
    }
    test = FeatureSet.open(data).split("test").load()
    expected = task_metrics("regression", test.labels, load(model).predict(test.features, test.available))
    found = read_json(model / "metrics.json")["test"]
    assert found == pytest.approx(expected, abs=1e-3)
    assert read_json(model / "step.json")["look_at"] == "metrics.json"


def test_the_history_has_every_term_for_every_epoch_and_dvclive_the_same(model: Path) -> None:
    with (model / "history.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
    terms = set(rows[0]) - {"epoch"}
    assert terms >= {"total", "task", "reconstruction", "property", "contrastive", "alignment", "valid_mae"}
    for term in terms:
        with (model / "live" / "plots" / "metrics" / f"{term}.tsv").open() as stream:
            live = list(csv.DictReader(stream, delimiter="\t"))
        assert [float(row[term]) for row in live] == [float(row[term]) for row in rows]


def test_dvc_can_plot_the_history(model: Path, tmp_path: Path, quick: Path) -> None:
    dvc, target = f"{quick}/bin/dvc", f"{model}/live/plots/metrics/total.tsv"
    subprocess.run([dvc, "init", "--no-scm", "-q"], cwd=tmp_path, check=True)
    show = [dvc, "plots", "show", "--json", target]
    result = subprocess.run(show, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["data"]) == 1


def test_the_command_in_another_process_writes_the_same_bytes(
    data: Path, model: Path, tmp_path: Path, quick: Path
) -> None:
    settings = [part for s in SMALL for part in ("--set", s)]
    command: list[str | Path] = [
        quick / "bin" / "mbd",
        "train",
        "--features",
        data,
        "--out",
        tmp_path / "again",
        *settings,
    ]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 0, result.stderr
    assert "test, seed 0" in result.stdout
    assert result.stderr.splitlines()[0] == f"model written to {tmp_path / 'again'}"
    assert all(line.startswith("next: mbd ") for line in result.stderr.splitlines()[1:])
    assert path_digest(tmp_path / "again") == path_digest(model)


@pytest.mark.parametrize("params", [JOINT, LATTICE], ids=lambda p: p.model.backbone)
def test_without_a_modality_not_a_byte_of_it_is_needed(tmp_path: Path, params: Params) -> None:
    data = joint_data(tmp_path / "set")
    summary = train.run(params, data, tmp_path / "before", without=("audio",))
    for file in data.glob("splits/*/audio.safetensors"):
        file.unlink()
    train.run(params, data, tmp_path / "after", without=("audio",))
    assert summary
    assert summary.modalities == {"text": 7, "visual": 5}
    assert path_digest(tmp_path / "before") == path_digest(tmp_path / "after")
    inputs = [read_json(tmp_path / name / "step.json")["inputs"]["features"] for name in ("before", "after")]
    assert inputs[0] == inputs[1]
    assert inputs[0]["without"] == ["audio"]
    with refused_as_no_modality("audio"):
        load(tmp_path / "after").predict({"audio": np.zeros((1, 4), np.float32)})


def test_data_that_was_changed_is_refused(tmp_path: Path) -> None:
    data = joint_data(tmp_path / "set")
    file = data / "splits" / "train" / "text.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with refused_as_changed(file):
        train.run(JOINT, data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_something_has_to_be_left(data: Path, tmp_path: Path) -> None:
    with refused(UsageError, key="--without"):
        train.run(JOINT, data, tmp_path / "out", without=("text", "audio", "visual"))


@pytest.mark.parametrize("params", [JOINT, LATTICE], ids=lambda p: p.model.backbone)
def test_rows_that_only_had_what_is_left_out_are_passed_over(tmp_path: Path, params: Params) -> None:
    data = joint_data(tmp_path / "set", missing=0.5)
    summary = train.run(params, data, tmp_path / "out", without=("text",))
    assert summary
    assert summary.metrics["test"]["mae"] < 2


def test_several_seeds_go_into_folders_of_their_own(data: Path, model: Path, tmp_path: Path) -> None:
    summaries = train.run_seeds(JOINT, data, tmp_path / "seeds", [0, 7])
    assert [summary.seed for summary in summaries] == ["0", "7"]
    assert {path.name for path in (tmp_path / "seeds").iterdir()} == {"seed-0", "seed-7"}
    assert path_digest(tmp_path / "seeds" / "seed-0") == path_digest(model)
    assert load(tmp_path / "seeds" / "seed-7").record.seed == "7"


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_seeds_are_different_numbers(data: Path, tmp_path: Path, seeds: list[int]) -> None:
    with refused(UsageError, key="--seeds"):
        train.run_seeds(JOINT, data, tmp_path / "out", seeds)


def test_seeds_do_not_go_into_the_folder_of_a_single_model(data: Path, model: Path) -> None:
    with refused(UsageError, key="--out", value=model):
        train.run_seeds(JOINT, data, model, [0, 1])


def test_one_modality_alone_can_be_trained_with_and_without_the_property_pathway(data: Path, tmp_path: Path) -> None:
    others = tuple(FeatureSet.open(data).modalities)[1:]
    for pathway in ("true", "false"):
        params = load_params(None, [*SMALL, f"model.joint.property_pathway={pathway}"])
        train.run(params, data, tmp_path / pathway, without=others)
        assert len(load(tmp_path / pathway).modalities) == 1

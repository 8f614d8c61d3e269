"""The step `evaluate`, from trained models to the folder it leaves."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mbd.errors import DataError
from mbd.evaluation.metrics import regression_metrics
from mbd.features.contract import FeatureSet
from mbd.model.predictor import load
from mbd.params import Params, load_params
from mbd.steps import evaluate
from tests.digests import path_digest
from tests.evaluation.models import as_revoked, tiny_model
from tests.features.build import synthetic_set
from tests.refusals import refused

NO_PATHWAY = "model.joint.property_pathway=false"


@pytest.fixture(scope="module")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A FeatureSet, a method of two seeds with the property pathway and one without, and a model without audio."""
    folder = tmp_path_factory.mktemp("home")
    synthetic_set(folder / "data")
    for seed in (0, 1):
        tiny_model(folder / "data", folder / "with" / f"seed-{seed}", f"training.seed={seed}")
        tiny_model(folder / "data", folder / "plain" / f"seed-{seed}", f"training.seed={seed}", NO_PATHWAY)
    tiny_model(folder / "data", folder / "silent", without=("audio",))
    return folder


def params(*settings: str) -> Params:
    return load_params(None, ["evaluation.figures=false", *settings])


def result(metrics: dict[str, Any], method: str, regime: str, *, corrupted: bool = False) -> dict[str, Any]:
    return next(
        record
        for record in metrics["results"]
        if (record["method"], record["regime"], record["corrupted"]) == (method, regime, corrupted)
    )


def test_the_same_models_give_the_same_bytes(model_workspace: Path, tmp_path: Path) -> None:
    for out in (tmp_path / "a", tmp_path / "b"):
        evaluate.run(params(), model_workspace / "data", [model_workspace / "with"], out)
    assert path_digest(tmp_path / "a") == path_digest(tmp_path / "b")


def test_two_methods_end_to_end(model_workspace: Path, tmp_path: Path) -> None:
    folders = [model_workspace / "with", model_workspace / "plain"]
    metrics = evaluate.run(
        load_params(), model_workspace / "data", folders, tmp_path / "a", against=model_workspace / "plain"
    ).metrics
    assert {p.name for p in (tmp_path / "a").iterdir()} == {
        "metrics.json",
        "headline.json",
        "regimes.csv",
        "missing_rates.csv",
        "report.md",
        "figures",
        "step.json",
    }
    assert {p.stem for p in (tmp_path / "a" / "figures").iterdir()} == {
        "missing_rates",
        "fixed_patterns",
        "losses_with",
        "losses_plain",
    }
    assert json.loads((tmp_path / "a" / "metrics.json").read_text()) == metrics
    assert json.loads((tmp_path / "a" / "headline.json").read_text()) == {"acc2": round(metrics["acc2"], 2)}
    assert {r["method"] for r in metrics["results"]} == {
        "with",
        "plain",
        "ridge by pattern",
        "zero imputation",
        "mean imputation",
    }
    assert {(c["ours"], c["theirs"]) for c in metrics["comparisons"]} == {
        ("with", "ridge by pattern"),
        ("plain", "ridge by pattern"),
        ("with", "plain"),
    }
    inputs = json.loads((tmp_path / "a" / "step.json").read_text())["inputs"]
    assert inputs["model with seed 1"]["digest"] == path_digest(model_workspace / "with" / "seed-1")


def test_the_numbers_are_those_of_the_models_own_predictions(model_workspace: Path, tmp_path: Path) -> None:
    metrics = evaluate.run(params(), model_workspace / "data", [model_workspace / "with"], tmp_path / "out").metrics
    test = FeatureSet.open(model_workspace / "data").split("test").load()
    for regime, shown in (("full", ("text", "audio", "visual")), ("audio+visual", ("audio", "visual"))):
        values = [
            regression_metrics(
                test.labels,
                load(model_workspace / "with" / f"seed-{seed}").predict({m: test.features[m] for m in shown}),
            )["mae"]
            for seed in (0, 1)
        ]
        found = result(metrics, "with", regime)["metrics"]["mae"]
        assert found["mean"] == pytest.approx(np.mean(values), abs=1e-4)
        assert found["deviation"] == pytest.approx(np.std(values, ddof=1), abs=1e-4)
    assert metrics["mae"] == result(metrics, "with", "full")["metrics"]["mae"]["mean"]


def test_a_deleted_model_and_all_others_are_judged_on_its_own_modalities(model_workspace: Path, tmp_path: Path) -> None:
    revoked = as_revoked(model_workspace / "silent", tmp_path / "revoked", "audio")
    metrics = evaluate.run(
        params(), model_workspace / "data", [revoked, model_workspace / "with"], tmp_path / "out"
    ).metrics
    assert metrics["modalities"] == ["text", "visual"]
    assert {r["regime"] for r in metrics["results"] if r["kind"] == "fixed"} == {"text", "visual"}
    assert any("audio" in note for note in metrics["notes"])
    assert any("0.6, 0.7" in note and "at most 0.5" in note for note in metrics["notes"])
    test = FeatureSet.open(model_workspace / "data").split("test").load()
    model = load(model_workspace / "with" / "seed-0")
    mae = regression_metrics(test.labels, model.predict({m: test.features[m] for m in ("text", "visual")}))["mae"]
    one = evaluate.run(
        params(), model_workspace / "data", [model_workspace / "with" / "seed-0", revoked], tmp_path / "one"
    ).metrics
    assert result(one, "seed-0", "full")["metrics"]["mae"]["mean"] == pytest.approx(mae, abs=1e-4)


def test_the_calibration_split_is_not_opened(model_workspace: Path, tmp_path: Path) -> None:
    data = shutil.copytree(model_workspace / "data", tmp_path / "data")
    shutil.rmtree(data / "splits" / "calibration")
    without = evaluate.run(params(), data, [model_workspace / "silent"], tmp_path / "without").metrics
    assert (
        without
        == evaluate.run(params(), model_workspace / "data", [model_workspace / "silent"], tmp_path / "with").metrics
    )


@pytest.mark.parametrize("modalities", ["{text: 9, audio: 4}", "{a: 5, b: 4, c: 3, d: 6}"])
def test_classes_and_other_numbers_of_modalities(modalities: str, tmp_path: Path) -> None:
    settings = [f"features.source.synthetic.dims={modalities}", "features.source.synthetic.classes=3"]
    data = synthetic_set(tmp_path / "data", *settings)
    metrics = evaluate.run(params(), data, [tiny_model(data, tmp_path / "model")], tmp_path / "out").metrics
    assert 0 <= metrics["wa"] <= 100
    fixed = [r for r in metrics["results"] if (r["method"], r["kind"], r["corrupted"]) == ("model", "fixed", False)]
    assert len(fixed) == 2 ** len(metrics["modalities"]) - 2


def test_data_of_another_model_is_refused_and_nothing_is_left(model_workspace: Path, tmp_path: Path) -> None:
    other = synthetic_set(tmp_path / "other", "features.source.synthetic.dims={text: 5, audio: 6, visual: 8}")
    with refused(DataError, key="text", file=other / "manifest.json"):
        evaluate.run(params(), other, [model_workspace / "with"], tmp_path / "out")
    assert not (tmp_path / "out").exists()

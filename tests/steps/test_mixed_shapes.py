"""Token ids, sequences, images and vectors in one FeatureSet, with classes and a blank in a name, in every step."""

from pathlib import Path

import numpy as np
import pytest

import mbd
from mbd.steps import predict
from tests.features.build import mixed_set
from tests.steps.model_workspace import METHODS, ModelWorkspace

SIZES = {"train": 240, "valid": 64, "test": 160, "calibration": 64}
FOUR, TWO = ("text", "audio", "image", "body sensors"), ("body sensors", "audio")
MIXTURES = {
    "a vector out of four kinds": (FOUR, "body sensors"),
    "a sequence beside vectors": (TWO, "audio"),
}


def mixture(folder: Path, modalities: tuple[str, ...]) -> Path:
    return mixed_set(folder, f"features.source.modalities=[{', '.join(modalities)}]", sizes=SIZES)


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) if "four" in name else name for name in MIXTURES],
)
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    modalities, gone = MIXTURES[request.param]
    settings = {"model.backbone": "tests.model.modules:EveryKind", "evaluation.figures": True, "attacks.figures": True}
    folder = tmp_path_factory.mktemp("mixture")
    return ModelWorkspace(folder, settings, lambda out: mixture(out, modalities), gone)


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_modality_ends_in_a_verified_certificate(
    workspace: ModelWorkspace, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    after = workspace.deletes_with_a_verified_certificate(method)
    assert list(after.with_name(f"{after.name}-leakage").glob("**/*.png"))


def test_it_is_evaluated_beside_ridge_for_every_set_of_modalities(workspace: ModelWorkspace, tmp_path: Path) -> None:
    mbd.evaluate(workspace["data"], [workspace["model"]], tmp_path / "evaluation", params=workspace.params)
    report = (tmp_path / "evaluation" / "report.md").read_text()
    assert all(word in report for word in ("ridge", "body sensors", "audio"))
    assert list((tmp_path / "evaluation" / "figures").glob("*.png"))


def test_the_gate_refuses_what_is_not_deleted(workspace: ModelWorkspace, tmp_path: Path) -> None:
    workspace.refuses_what_is_not_deleted(tmp_path)


def test_rows_are_classified_from_what_they_have(workspace: ModelWorkspace, tmp_path: Path) -> None:
    predict.run(workspace["data"], workspace["model"], tmp_path / "classes.csv", available=["body sensors"])
    rows = mbd.FeatureSet.open(workspace["data"]).split("test").load()
    probabilities = mbd.load(workspace["model"]).predict(rows.inputs(["body sensors"]))
    assert probabilities.shape == (len(rows), 3)
    lines = (tmp_path / "classes.csv").read_text().splitlines()
    named = np.array(["calm", "so so", "upset"])[probabilities.argmax(1)]
    assert [name in line for name, line in zip(named, lines[1:], strict=True)] == [True] * len(rows)

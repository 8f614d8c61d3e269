"""Modules over frames, token ids and pixels, as users write them: from training to a verified certificate."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mbd
from mbd.steps import predict
from tests.features.build import shaped_set, synthetic_set
from tests.refusals import refused
from tests.steps.model_workspace import METHODS, ModelWorkspace

SIZES = {"train": 240, "valid": 64, "test": 160, "calibration": 64}
_TOWER = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def sequences(folder: Path) -> Path:
    return synthetic_set(
        folder,
        "features.source.preset=sequences",
        "features.source.synthetic.frames={text: 5, audio: 7, visual: 4}",
        f"features.source.synthetic.rows={SIZES}",
    )


def mixed(folder: Path) -> Path:
    return shaped_set(folder, sizes=SIZES)


def text_and_image(folder: Path) -> Path:
    return shaped_set(folder, "features.source.modalities=[text, image]", sizes=SIZES)


MODULES: dict[str, tuple[Callable[[Path], Path], dict[str, object], str]] = {
    "GRU over frames": (sequences, {"model.backbone": "tests.model.modules:Recurrent"}, "audio"),
    "transformer over frames": (
        sequences,
        {
            "model.backbone": "mbd.model.examples.crossmodal:CrossModalTransformer",
            "model.options": {"width": 8, "heads": 2, "layers": 1, "dropout": 0.0},
        },
        "audio",
    ),
    "token ids, frames and pixels": (
        mixed,
        {"model.backbone": "tests.model.modules:Perception", "training.epochs": 30},
        "audio",
    ),
    "two towers": (
        text_and_image,
        {
            "model.backbone": "mbd.model.examples.two_towers:TwoTowers",
            "model.options": {"text": _TOWER, "image": {**_TOWER, "patch_size": 4}, "width": 6},
        },
        "image",
    ),
}


@pytest.fixture(
    scope="module",
    params=[name if "GRU" in name else pytest.param(name, marks=pytest.mark.slow) for name in MODULES],
)
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    if request.param == "two towers":
        pytest.importorskip("transformers")
    data, module, modality = MODULES[request.param]
    return ModelWorkspace(tmp_path_factory.mktemp("shapes"), module, data, modality)


@pytest.mark.parametrize("method", METHODS)
def test_a_deleted_modality_ends_in_a_verified_certificate(
    workspace: ModelWorkspace, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace.deletes_with_a_verified_certificate(method)


def test_the_gate_refuses_what_is_not_deleted(workspace: ModelWorkspace, tmp_path: Path) -> None:
    workspace.refuses_what_is_not_deleted(tmp_path)


def test_rows_are_scored_from_what_they_have(workspace: ModelWorkspace, tmp_path: Path) -> None:
    predict.run(workspace["data"], workspace["model"], tmp_path / "scores.csv", available=["text"])
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    model, rows = mbd.load(workspace["model"]), mbd.FeatureSet.open(workspace["data"]).split("test").load()
    scores = model.predict(rows.inputs(["text"]))
    assert np.allclose([float(line.split(",")[2]) for line in lines[1:]], scores, atol=2e-6)
    with refused(mbd.DataError, key="text", value=(3, 2)):
        model.predict({"text": np.zeros((3, 2))})
    with refused(mbd.DataError, key="text_lengths"):
        model.predict({"text": rows.features["text"], "text_lengths": np.full(len(rows), 99)})

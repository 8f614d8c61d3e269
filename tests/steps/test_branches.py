"""`mbd branches`, and what `mbd import` and `mbd delete` say of branches that are not named."""

import json
from pathlib import Path

import pytest

import mbd
from tests.command import run_mbd
from tests.features.build import synthetic_set
from tests.foreign_modules import FOREIGN, foreign_set

FOREIGN_MODULE = FOREIGN["cross-modal"]
SETTING = "model.branches.audio=[pairs.l_with_a, pairs.v_with_a, memories.a]"
TRAINING = {"training.epochs": 1, "training.optimiser": "adamw"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and a cross-modal model of fixed shape that was trained without branches."""
    folder = tmp_path_factory.mktemp("branches")
    sizes = {"train": 48, "valid": 16, "test": 16, "calibration": 16}
    foreign_set(folder / "data", FOREIGN_MODULE.kind, sizes=sizes)
    mbd.train(folder / "data", folder / "model", params={**TRAINING, "model.backbone": FOREIGN_MODULE.backbone})
    return folder


def test_the_proposal_is_a_table_with_sizes_and_the_line_that_accepts_it(folder: Path) -> None:
    shown = run_mbd("branches", folder / "model", "--modality", "audio").stdout
    rows = [line.split() for line in shown.splitlines()]
    assert ["pairs.l_with_a", "text,", "audio", "164", "no"] in rows
    assert "audio: 1,656 of 3,469 numbers exist for it alone with these branches; " in shown
    assert "memories.l, memories.v, mix and out heard audio in training too" in shown
    assert f"to accept: --set '{SETTING}'" in shown


def test_json_has_every_modality_and_what_is_missing(folder: Path) -> None:
    proposals = json.loads(run_mbd("branches", folder / "model", "--json").stdout)
    assert list(proposals) == ["text", "audio", "visual"]
    assert proposals["audio"]["setting"] == SETTING
    assert proposals["audio"]["missing"] == list(FOREIGN_MODULE.branches)
    assert proposals["audio"]["cut"] < proposals["audio"]["cut_with_proposal"]


def test_several_modalities_are_looked_at_one_by_one_and_together(folder: Path) -> None:
    both = ("--modality", "audio", "--modality", "visual")
    proposals = json.loads(run_mbd("branches", folder / "model", *both, "--json").stdout)
    assert list(proposals) == ["audio", "visual", "audio and visual"]
    assert proposals["audio and visual"]["gone"] == ["audio", "visual"]


def test_branches_of_the_parameters_are_compared_with_the_proposal(folder: Path) -> None:
    settings = ("--set", f"model.backbone={FOREIGN_MODULE.backbone}", "--set", SETTING)
    shown = run_mbd("branches", folder / "model", "--modality", "audio", *settings).stdout
    assert "all are named" in shown
    assert "to accept" not in shown


def test_an_import_prints_the_proposal(folder: Path, tmp_path: Path) -> None:
    weights = ("--weights", folder / "model" / "model.safetensors", "--features", folder / "data")
    trained_on = [part for m in FOREIGN_MODULE.shapes for part in ("--trained-on", m)]
    settings = ("--set", f"model.backbone={FOREIGN_MODULE.backbone}")
    done = run_mbd("import", *weights, *trained_on, *settings, "--out", tmp_path / "model")
    assert f"to accept: --set '{SETTING}'" in done.stderr
    named = run_mbd("import", *weights, *trained_on, *settings, "--set", SETTING, "--out", tmp_path / "named")
    assert "model.branches.audio" not in named.stderr.partition("next:")[0]


def test_a_deletion_that_would_cut_inputs_alone_is_refused_with_the_proposal(folder: Path, tmp_path: Path) -> None:
    params = {**TRAINING, "model.backbone": FOREIGN_MODULE.backbone, "deletion.method": "surgery"}
    with pytest.raises(mbd.UsageError) as refusal:
        mbd.delete(folder / "data", folder / "model", ["audio"], tmp_path / "deleted", params=params)
    assert SETTING in str(refusal.value.hint)
    assert not (tmp_path / "deleted").exists()


def test_only_modules_of_ones_own_and_modalities_that_they_take_have_branches(folder: Path, tmp_path: Path) -> None:
    refused = run_mbd("branches", folder / "model", "--modality", "smell")
    assert refused.exit_code == 2
    assert "the model takes no smell" in refused.stderr
    synthetic_set(tmp_path / "data")
    mbd.train(tmp_path / "data", tmp_path / "joint", params={**TRAINING, "model.backbone": "joint"})
    refused = run_mbd("branches", tmp_path / "joint")
    assert refused.exit_code == 2
    assert "only a module of one's own has branches" in refused.stderr

"""`mbd init`: a project in a folder of one's own, whose stages depend on its own data, module and parameters."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from mbd.deployment.values import DeployValues, read_values, with_names
from mbd.params import load_params
from tests.command import run_mbd
from tests.docs.workspace import Workspace

MODULE = """
import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self, words, voice):
        super().__init__()
        self.words_net, self.voice_net, self.out = nn.Linear(words, 4), nn.Linear(voice, 4), nn.Linear(8, 1)

    def forward(self, words, voice):
        return self.out(torch.cat([self.words_net(words), self.voice_net(voice)], dim=1))
"""
OWN = (*("--model", "paper:Fusion", "--set", "model.inputs=[words, voice]", "--set", "requests.modality=voice"),)


def dependencies(project: Path) -> dict[str, set[str]]:
    """Return what each stage depends on, but for outputs of other stages."""
    files = [*project.glob("dvc.yaml"), *project.glob("*/dvc.yaml")]
    stages = {name: stage for file in files for name, stage in yaml.safe_load(file.read_text())["stages"].items()}
    return {
        name: {each for each in stage.get("deps", ()) if not each.startswith("build/")}
        for name, stage in stages.items()
    }


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a table and a module, as somebody has it before anything else."""
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    random = np.random.default_rng(0)
    score = random.standard_normal((240, 1)).clip(-3, 3)
    columns = score + random.standard_normal((240, 5))
    names = ["id", "label", "voice_0", "voice_1", "words_0", "words_1", "words_2"]
    rows = [[f"speaker{n // 8}_{n}", *map(str, (score[n, 0], *columns[n]))] for n in range(240)]
    Path("own.csv").write_text("".join(",".join(row) + "\n" for row in (names, *rows)))
    Path("paper.py").write_text(MODULE)
    return tmp_path / "own"


def test_stages_depend_on_the_own_data_and_module_and_on_no_source_of_this_package(own: Path) -> None:
    assert run_mbd("init", "--data", "own.csv", *OWN).exit_code == 0
    found = dependencies(own)
    assert {"features", "train", "reference", "delete", "attack", "certify", "publish"} <= found.keys()
    assert {name: needs for name, needs in found.items() if needs} == {
        "features": {"own.csv"},
        "train": {"paper.py"},
        "reference": {"paper.py"},
    }
    written = yaml.safe_load((own / "params.yaml").read_text())
    assert written["features"]["source"]["path"] == "own.csv"
    assert (written["model"]["backbone"], written["deletion"]["method"]) == ("paper:Fusion", "exact")
    assert written["certificate"]["model"] == "Fusion"
    assert len((own / "README.md").read_text().splitlines()) <= 6


def test_without_own_data_the_project_begins_with_synthetic_ones_and_registers_a_model_for_kubeflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run_mbd("init", "project", "--kubeflow", "--json")
    assert done.exit_code == 0 and "next: cd project && dvc repro dvc.yaml release/dvc.yaml" in done.stderr
    found = dependencies(tmp_path / "project")
    assert {"references", "register"} <= found.keys() and not any(found.values())
    project = tmp_path / "project"
    assert {"project/values.yaml", "project/pipelines/delete.yaml"} <= set(json.loads(done.stdout))
    assert "configMapName: mbd-trust" in (project / "pipelines" / "delete.yaml").read_text()
    assert read_values(project / "values.yaml") == DeployValues()
    assert (project / "values.yaml").read_text().count("#") > 30  # each with its meaning
    monkeypatch.chdir(project)
    rendered = [*yaml.safe_load_all(run_mbd("deploy", "render").stdout)]
    assert {"mbd-serve", "mbd-exporter"} <= {each["metadata"]["name"] for each in rendered}


def test_for_kubeflow_names_that_are_set_already_stay(tmp_path: Path) -> None:
    (file := tmp_path / "params.yaml").write_text("platform: {keys_secret: signing}")
    params = load_params(file, with_names(file, ["platform.state_claim=ledgers"]))
    assert (params.platform.keys_secret, params.platform.state_claim) == ("signing", "ledgers")
    assert params.platform.trust_config == "mbd-trust"


def test_data_are_named_as_they_lie_from_the_project(own: Path) -> None:
    assert run_mbd("init", "below", "--data", "own.csv").exit_code == 0
    assert dependencies(own / "below")["features"] == {"../own.csv"}


def test_the_same_command_again_changes_nothing_and_another_one_replaces_nothing(own: Path) -> None:
    (own / ".gitignore").write_text("*.csv")
    assert run_mbd("init", "--data", "own.csv").exit_code == 0
    before = {file: file.read_bytes() for file in own.rglob("*") if file.is_file()}
    assert (own / ".gitignore").read_text() == "*.csv\n/build/\n"
    assert run_mbd("init", "--data", "own.csv").exit_code == 0
    refused = run_mbd("init", "--data", "own.csv", *OWN)
    assert refused.exit_code == 2 and "another file of this name" in refused.stderr
    assert {file: file.read_bytes() for file in own.rglob("*") if file.is_file()} == before


def test_a_repository_of_git_stays_the_one_that_it_is(own: Path) -> None:
    subprocess.run(["git", "init", "-q", own.parent], check=True)
    assert run_mbd("init").exit_code == 0
    assert (own / ".dvc" / "config").exists() and not (own / ".git").exists()


@pytest.mark.slow
def test_an_own_table_and_an_own_module_lead_to_a_verified_certificate(own: Path, quick: Path) -> None:
    small = {"training.epochs": 3, "attacks.resamples": 200, "attacks.figures": False, "evaluation.figures": False}
    settings = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
    begun = run_mbd("init", "--data", "own.csv", *OWN, *settings)
    (command,) = re.findall(r"^next: (.*)$", begun.stderr, re.MULTILINE)
    project = Workspace(own, quick)
    project.bash(command, "the next command of init")
    (verify,) = re.findall(r"`(mbd verify .*?)`", (own / "README.md").read_text())
    project.bash(verify, "README.md of the project")
    assert run_mbd(*shlex.split(verify)[1:]).stdout.startswith("VERIFIED")

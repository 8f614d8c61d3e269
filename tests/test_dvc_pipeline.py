"""`dvc repro` on this repository's own stages: all of it, then nothing, then only what depends on a change."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from mbd.cli import group
from mbd.files import read_json

REPOSITORY = Path(__file__).parents[1]
RELEASE = "release/dvc.yaml"
SMALL = {
    "features": {
        "source": {
            "synthetic": {
                "dims": {"text": 12, "audio": 6, "visual": 8},
                "rows": {"train": 160, "valid": 48, "test": 64, "calibration": 64},
            }
        }
    },
    "model": {"joint": {"hidden": 16, "embedding": 8, "property_dim": 8}},
    "training": {"epochs": 6},
    "evaluation": {"figures": False},
    "attacks": {"figures": False, "resamples": 200},
}


def merge(tree: dict[str, object], change: dict[str, object]) -> dict[str, object]:
    merged = dict(tree)
    for key, value in change.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


class Project:
    """A clone of this repository with small parameters."""

    def __init__(self, folder: Path, quick: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("dvc.yaml", "params.yaml", ".dvcignore", ".gitignore", RELEASE):
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
        shutil.copytree(REPOSITORY / "data", folder / "data")
        shutil.copytree(REPOSITORY / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        self.described = {
            name: stage
            for file in ("dvc.yaml", RELEASE)
            for name, stage in yaml.safe_load((folder / file).read_text())["stages"].items()
        }
        self.stages = list(self.described)
        self.change(SMALL)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "DVC_"))},
            "PATH": os.pathsep.join([str(quick / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]),
            "HOME": str(folder),
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(folder / ".site"),
        }
        self.run("git", "init", "-q")
        for key in ("user.name", "user.email"):
            self.run("git", "config", key, "test@example.com")
        self.run("dvc", "init", "-q")
        self.run("git", "commit", "-q", "-m", "start")

    def attempt(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    def run(self, *command: str) -> str:
        result = self.attempt(*command)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def change(self, change: dict[str, object]) -> None:
        file = self.folder / "params.yaml"
        file.write_text(yaml.safe_dump(merge(yaml.safe_load(file.read_text()), change)))

    def repro(self) -> list[str]:
        """Return the stages that ran."""
        return self.ran(self.run("dvc", "repro", "dvc.yaml", RELEASE))

    def ran(self, output: str) -> list[str]:
        return [stage for stage in self.stages if f"{stage}'" in re.findall(r"Running stage '(?:.*:)?(.*')", output)]


@pytest.mark.slow
def test_a_fresh_clone_runs_everything_once_and_then_only_what_a_change_touches(tmp_path: Path, quick: Path) -> None:
    check_the_life_of(Project(tmp_path / "clone", quick))


def check_the_life_of(project: Project) -> None:
    assert project.repro() == project.stages
    assert project.repro() == []
    project.change({"training": {"seed": 1}})
    assert re.findall(r"^(\S+):$", project.run("dvc", "status"), re.M) == ["train", "reference", "delete"]
    project.change({"training": {"seed": 0}})
    check_that_outputs_are_versioned_with_how_they_came_about(project)
    shown = project.run("dvc", "metrics", "show")
    assert shown.split("\n")[0].split() == ["Path", "acc2", "acc2_deleted", "acc2_reference", "leaks", "leaks_before"]
    assert max(map(len, shown.splitlines())) <= 100
    check_that_plots_are_the_figures(project)
    check_that_an_experiment_is_measured_and_never_signed(project)
    check_that_a_refused_model_stops_the_pipeline_and_shows_why(project)


def check_that_plots_are_the_figures(project: Project) -> None:
    figure = project.folder / "build/leakage/figures/leakage.png"  # not drawn here, to be quick
    shutil.copy(REPOSITORY / "docs/pictures/leakage.png", figure)
    assert "index.html" in project.run("dvc", "plots", "show", "--out", "plots")
    assert [file.name for file in (project.folder / "plots/static").iterdir()] == [
        "workspace_build_leakage_figures_leakage.png"
    ]
    figure.unlink()


def check_that_an_experiment_is_measured_and_never_signed(project: Project) -> None:
    project.run("git", "add", "-A")
    project.run("git", "commit", "-q", "-m", "measured")
    entries = list((project.folder / "build/store/certificates").rglob("*"))
    measured = project.run("dvc", "exp", "run", "--set-param", "evaluation.seed=1")
    assert project.ran(measured) == ["evaluate", "evaluate-deleted"]
    refused = project.attempt("dvc", "exp", "run", RELEASE)
    assert refused.returncode != 0
    assert "an experiment is not certified" in refused.stdout + refused.stderr
    assert list((project.folder / "build/store/certificates").rglob("*")) == entries


def check_that_a_refused_model_stops_the_pipeline_and_shows_why(project: Project) -> None:
    project.change({"deletion": {"surgery": {"cut": False}}})
    stopped = project.attempt("dvc", "repro", "dvc.yaml", RELEASE)
    assert stopped.returncode != 0
    assert "the gate refuses the model after the deletion of audio" in stopped.stdout + stopped.stderr
    assert project.ran(stopped.stdout) == ["delete", "evaluate-deleted", "attack"]
    assert read_json(project.folder / "build/leakage/leakage.json")["decision"] == "refused"
    project.change({"deletion": {"surgery": {"cut": True}}})
    # DVC has the outputs of the others in its cache; certified is what the experiment measured.
    assert project.repro() == ["certify", "publish"]
    assert read_json(project.folder / "build/leakage/leakage.json")["decision"] == "passed"


def check_that_outputs_are_versioned_with_how_they_came_about(project: Project) -> None:
    for name, stage in project.described.items():
        folder = Path(stage["outs"][0]).parents[0]
        assert f"{folder}/step.json" in stage["outs"], name
        written = set(read_json(project.folder / folder / "step.json")["outputs"]["files"])
        tracked = {str(Path(out).relative_to(folder)) for out in [*stage["outs"], *stage.get("metrics", [])]}
        # What DVC does not know it does not remove either, and the step would not overwrite it.
        assert not {file for file in written if not any(file == t or file.startswith(f"{t}/") for t in tracked)}, name


def test_the_stages_of_production_register_the_model_with_all_its_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    params = merge(yaml.safe_load((REPOSITORY / "params.yaml").read_text()), {**SMALL, "requests": {"revocable": None}})
    Path("params.yaml").write_text(yaml.safe_dump(params))
    stages = {
        **yaml.safe_load((REPOSITORY / "dvc.yaml").read_text())["stages"],
        **yaml.safe_load((REPOSITORY / "production/dvc.yaml").read_text())["stages"],
    }
    for name in ("features", "train", "references", "register"):
        commands = stages[name]["cmd"]
        for line in [commands] if isinstance(commands, str) else commands:
            run_here(line.replace("${requests.modality}", "audio").replace("${store.url}", "file://build/store"))
        assert all(Path(file).exists() for file in stages[name]["outs"])
        read = [file for file in stages[name]["deps"] if file.startswith("build/")]
        assert all(Path(file).exists() for file in read)
    registered = read_json(Path("build/registration.json"))
    assert (registered["promoted"], set(registered["references"])) == (True, {"text", "audio", "visual"})


def run_here(line: str) -> None:
    """Run a command of a stage, without the start of a process; what follows `>` is where its output goes."""
    words = shlex.split(line)
    command, file = (words[: words.index(">")], words[-1]) if ">" in words else (words, None)
    done = CliRunner().invoke(group, command[1:])
    assert done.exit_code == 0, (line, done.output, done.exception)
    if file:
        Path(file).write_text(done.stdout)

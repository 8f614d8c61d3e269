"""Claims about what the interfaces of the steps cost, measured on one whole deletion by each of them.

1. Beyond what starting processes and importing packages takes, `dvc repro` adds about a second to the steps' own work
   (the sum of `duration_seconds` in their step.json) for each stage, whose outputs it hashes and caches: 10 to 15 % at
   the size of MOSI.
2. Starting a step costs about the same by every interface. The pipelines `train` and `delete` have tasks beside the
   steps of dvc.yaml: they register the model, fetch it, publish, and report.

    python benchmarks/pipeline.py [--size tiny|mosi]

What a process and its imports cost is what the same commands take one after the other in a shell beyond their own work.
The steps are small in `tiny`, so shares of their work are large there: look at the seconds for each step.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from mbd.files import read_json
from mbd.params import load_params, to_yaml

REPOSITORY = Path(__file__).parents[1]
TINY = [
    "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}",
    "features.source.synthetic.rows={train: 160, valid: 48, test: 64, calibration: 64}",
    *("model.joint.hidden=16", "model.joint.embedding=8", "model.joint.property_dim=8", "training.epochs=6"),
    *("evaluation.figures=false", "attacks.figures=false", "attacks.resamples=200"),
]
PIPELINES = ("train", "delete")
ONE_REFERENCE = "--set 'requests.revocable=[audio]'"  # as dvc.yaml has it


@dataclass(frozen=True)
class Run:
    """One whole deletion by one interface."""

    interface: str
    seconds: float
    work: float
    """the steps' own"""
    starts: float
    """what the same steps take in a shell beyond their own work"""
    steps: int

    def line(self) -> str:
        """Return what was measured as a row of the table."""
        over, beyond = self.seconds - self.work, self.seconds - self.work - self.starts
        return (
            f"{self.interface:<22} {self.seconds:8.1f} {self.work:8.1f} {over / self.work:10.2f} "
            f"{beyond / self.work:12.2f} {over / self.steps:12.2f}"
        )


class Clone:
    """A clone of this repository with parameters of its own."""

    def __init__(self, folder: Path, settings: list[str]) -> None:
        self.folder = folder
        for name in ("dvc.yaml", ".dvcignore", ".gitignore"):
            shutil.copy(REPOSITORY / name, folder / name)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        for name in ("data", "src", "pipelines", "components"):
            shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
        params = load_params(REPOSITORY / "params.yaml", settings)
        (folder / "params.yaml").write_text(to_yaml(params))
        self._modality, self._store = params.requests.modality, params.store.url
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("GIT_", "DVC_"))},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(folder / ".site"),
        }
        self.timed("git init -q && dvc init -q && git add --all")
        self.timed("git -c user.name=b -c user.email=b@example.org commit -q -m start")

    def timed(self, command: str) -> float:
        """Run a shell command to its good end; return the seconds it took."""
        start = time.perf_counter()
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{command} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return time.perf_counter() - start

    def stages(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the command line of each stage of dvc.yaml."""
        for name, stage in yaml.safe_load((self.folder / "dvc.yaml").read_text())["stages"].items():
            lines = stage["cmd"] if isinstance(stage["cmd"], list) else [stage["cmd"]]
            line = " && ".join(lines)
            yield name, line.replace("${requests.modality}", self._modality).replace("${store.url}", self._store)

    def work(self, pattern: str) -> list[float]:
        """Return how long each step whose step.json matches took by its own account."""
        return [float(read_json(file)["duration_seconds"]) for file in sorted(self.folder.glob(pattern))]


def by_shell(clone: Clone) -> tuple[Run, dict[str, float]]:
    """Run every stage by hand; return the run, and the work of each stage."""
    seconds = {name: clone.timed(line) for name, line in clone.stages()}
    folders = {"evaluate-deleted": "evaluation-deleted", "delete": "deleted", "attack": "leakage", "train": "model"}
    folders |= {"evaluate": "evaluation", "certify": "certificate", "publish": "published"}
    work = {name: sum(clone.work(f"build/{folders.get(name, name)}/step.json")) for name in seconds}
    whole, own = sum(seconds.values()), sum(work.values())
    return Run("command line", whole, own, whole - own, len(seconds)), work


def main() -> None:
    parser = argparse.ArgumentParser(description="What the interfaces of the steps cost.")
    parser.add_argument("--size", choices=["tiny", "mosi"], default="tiny")
    size = parser.parse_args().size
    with tempfile.TemporaryDirectory() as folder:
        clone = Clone(Path(folder), TINY if size == "tiny" else [])
        shell, work = by_shell(clone)
        shutil.rmtree(clone.folder / "build")
        whole = clone.timed("dvc repro")
        dvc = Run("dvc repro", whole, sum(clone.work("build/*/step.json")), shell.starts, shell.steps)
        shutil.rmtree(clone.folder / "build")
        whole = sum(clone.timed(f"mbd pipeline run {name} --runner subprocess {ONE_REFERENCE}") for name in PIPELINES)
        # The FeatureSets of the pipelines are gone with them, and their step.json with that.
        own = sum(clone.work("build/kfp/**/step.json")) + len(PIPELINES) * work["features"]
        tasks = len(list(clone.folder.glob("build/kfp/**/executor_output.json")))
        pipeline = Run("pipelines, subprocess", whole, own, shell.starts / shell.steps * tasks, tasks)
    print(f"one deletion ({size}) by each interface; overhead as a share of the steps' own work")
    print(f"{'':<22} {'seconds':>8} {'work':>8} {'overhead':>10} {'beyond start':>12} {'s each step':>12}")
    for run in (shell, dvc, pipeline):
        print(run.line())


if __name__ == "__main__":
    main()

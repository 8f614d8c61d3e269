"""A pipeline on this machine, by kfp's local runners: each step a process, or a container.

What kfp and the tasks print is in the file `LOG` below the root. Shown are each task with the headline of its step, and
of one that fails the last lines. A run that was killed leaves its containers and its feature data behind; the next run
with the same root removes them.
A step that fails here is not tried again: what fails on one machine fails again.
"""

import contextlib
import io
import os
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, TextIO

from kfp import local

from mbd.errors import MbdError
from mbd.kubeflow.common import environment
from mbd.kubeflow.data import SHARED_FOLDER
from mbd.params.platform import PlatformSettings, RetriesSettings
from pipelines.compiling import build

Runner = Literal["subprocess", "docker"]
LOG = "run.log"
_FEATURES = ".features-"
_LAST_LINES = 15
_INDENT = "    "
_COLOUR = re.compile(r"\x1b\[\d+m")
_OF_KFP = re.compile(r"^( *[\]\[{}\"]| {5,}|\[KFP Executor|Found image|Pulling image|Image pull)")
"""executor inputs as JSON, and messages, among the lines of a task"""
_RESULTS = {"model": ("delete", "deleted"), "audit": ("attack", "leakage"), "certificate": ("publish", "published")}
"""what a user looks for → step and artifact that hold it"""


class TaskOutput(io.StringIO):
    """In place of standard output while kfp runs: everything goes to a log, and what people need to a stream."""

    def __init__(self, log: TextIO, shown: TextIO) -> None:
        super().__init__()
        self.log, self.shown = log, shown
        self.rest, self.indent, self.in_task, self.in_headline = "", _INDENT, False, False
        self.has_headline, self.hidden = False, list[str]()

    def write(self, text: str) -> int:
        """Take text, in pieces of any size."""
        *lines, self.rest = (self.rest + text).split("\n")
        for line in lines:
            self._take(_COLOUR.sub("", line))
        return len(text)

    def _show(self, text: str) -> None:
        self.shown.write(f"{text}\n")
        self.shown.flush()

    def _take(self, line: str) -> None:
        self.log.write(f"{line}\n")  # kfp has put a print of its own in place of the builtin
        if executor := re.match(r"( +)\[KFP Executor", line):
            self.indent = executor[1]  # deeper in what runs beside other tasks
        own = line.removeprefix(self.indent)
        if task := re.search(r" - INFO - Executing task '(.+)'$", line):
            self._show(f"== {task[1]}")
            self.indent, self.in_task, self.in_headline, self.has_headline, self.hidden = _INDENT, True, True, False, []
        elif " finished with status " in line:
            if line.endswith("FAILURE") and self.hidden:
                self._show("\n".join(self.hidden[-_LAST_LINES:]))
            self.in_task = False
        elif self.in_task and (own != line or not line) and not _OF_KFP.match(own):
            if not own.strip():
                self.in_headline = self.in_headline and not self.has_headline
            elif self.in_headline or own.startswith("warning: "):
                self.has_headline = True
                self._show(own)
            else:
                self.hidden.append(own)


class StepFailedError(MbdError):
    """A step of the pipeline failed."""


def run_pipeline(
    name: str,
    platform: PlatformSettings,
    arguments: dict[str, Any],
    root: Path,
    runner: Runner,
    *,
    network: str = "none",
) -> dict[str, Path]:
    """Run a pipeline to its end, with the outputs of its steps below `root`.

    Returns:
        Where the run's outputs are, and of the models and certificates in them those that a user looks for.
    """
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    before = {*root.iterdir(), root / LOG}
    once = platform.model_copy(update={"retries": RetriesSettings(count=0)})
    with _shared_features(root) as shared, environment({SHARED_FOLDER: str(shared)}):
        steps = _containers(once, root, shared, network) if runner == "docker" else _processes()
        local.init(steps, pipeline_root=str(root), raise_on_error=True)
        try:
            with (
                (root / LOG).open("w") as log,
                contextlib.redirect_stdout(TaskOutput(log, sys.stdout)),
                warnings.catch_warnings(),
            ):
                # kfp warns that an image is not called "python", and which settings of a cluster have no effect here
                warnings.filterwarnings("ignore", module=r"kfp\.local\.")
                build(name, once)(**arguments)
        except RuntimeError as error:
            raise StepFailedError(
                _COLOUR.sub("", str(error)),
                file=root / LOG,
                hint="the step's own message is above; correct what it names and run the pipeline again",
            ) from error
    return _outputs(next(folder for folder in root.iterdir() if folder not in before))


def _outputs(run: Path) -> dict[str, Path]:
    found = {label: run / step / artifact for label, (step, artifact) in _RESULTS.items()}
    return {"outputs": run, **{label: folder for label, folder in found.items() if folder.exists()}}


def _processes() -> local.SubprocessRunner:
    return local.SubprocessRunner(use_venv=False)


def _containers(platform: PlatformSettings, root: Path, shared: Path, network: str) -> local.DockerRunner:
    from pipelines.containers import container_runner  # noqa: PLC0415 -- who runs processes needs no docker

    return container_runner(platform, root, shared, network)


@contextlib.contextmanager
def _shared_features(root: Path) -> Iterator[Path]:
    """Give a folder for the feature data of this run; remove it at the end, and those of runs that were killed."""
    for left in root.glob(f"{_FEATURES}*"):
        if not Path("/proc", left.name.removeprefix(_FEATURES).partition("-")[0]).exists():
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(dir=root, prefix=f"{_FEATURES}{os.getpid()}-") as folder:
        yield Path(folder)

"""A pipeline on this machine, by kfp's local runners: each step a process, or a container.

A run that was killed leaves its containers and its feature data behind; the next run with the same root removes them.
A step that fails here is not tried again: what fails on one machine fails again.
"""

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from kfp import local

from mbd.errors import MbdError
from mbd.kubeflow.common import environment
from mbd.kubeflow.data import SHARED_FOLDER
from mbd.params.platform import PlatformSettings, RetriesSettings
from pipelines.compiling import build

Runner = Literal["subprocess", "docker"]
_FEATURES = ".features-"
_RESULTS = {"model": ("delete", "deleted"), "audit": ("attack", "leakage"), "certificate": ("publish", "published")}
"""what a user looks for → step and artifact that hold it"""


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
    before = set(root.iterdir())
    once = platform.model_copy(update={"retries": RetriesSettings(count=0)})
    with _shared_features(root) as shared, environment({SHARED_FOLDER: str(shared)}):
        steps = _containers(once, root, shared, network) if runner == "docker" else _processes()
        local.init(steps, pipeline_root=str(root), raise_on_error=True)
        try:
            with warnings.catch_warnings():
                # kfp warns that an image is not called "python", and which settings of a cluster have no effect here
                warnings.filterwarnings("ignore", module=r"kfp\.local\.")
                build(name, once)(**arguments)
        except RuntimeError as error:
            raise StepFailedError(
                str(error), hint="the step's own message is above; correct what it names and run the pipeline again"
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

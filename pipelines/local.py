"""A pipeline on this machine, by kfp's local runners: each step a process, or a container.

kfp's Docker runner lets containers remove themselves and takes "no such container" for success, so that a step that
failed fast counts as done. Here a container is started, watched to its end, asked for its exit code, and then removed.
(kfp 2.17; :func:`run_container` has the signature of the function that it stands in for.)

A container runs as on the cluster: not as root, with a read-only root filesystem, without capabilities. It has no
network unless it is given one, and of this machine only the pipeline's folder and the folder `build`.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from kfp import local
from kfp.local import docker_task_handler

from mbd.errors import MbdError
from mbd.kubeflow.reference import SHARED_FOLDER
from mbd.params.platform import Platform
from pipelines.compiling import build

Runner = Literal["subprocess", "docker"]
WORKSPACE = "/workspace"


class StepFailedError(MbdError):
    """A step of the pipeline failed."""


def run_pipeline(
    name: str, platform: Platform, arguments: dict[str, Any], root: Path, runner: Runner, *, network: str = "none"
) -> None:
    """Run a pipeline to its end, with the outputs of its steps below `root`."""
    root = root.absolute()
    root.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=root, prefix=".features-") as shared, _environment(SHARED_FOLDER, shared):
        local.init(
            _containers(root, shared, network) if runner == "docker" else local.SubprocessRunner(use_venv=False),
            pipeline_root=str(root),
            raise_on_error=True,
        )
        try:
            build(name, platform)(**arguments)
        except RuntimeError as error:
            raise StepFailedError(
                str(error), way_out="the step's own message is above; mend what it says and run the pipeline again"
            ) from error


def _containers(root: Path, shared: str, network: str) -> local.DockerRunner:
    docker_task_handler.run_docker_container = run_container
    build_folder = Path("build").absolute()
    build_folder.mkdir(exist_ok=True)
    return local.DockerRunner(
        user=f"{os.getuid() or 10001}:{os.getgid() or 10001}",
        read_only=True,
        tmpfs={"/tmp": ""},  # noqa: S108 -- the container's own
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode=network,
        mounts=[{"Type": "bind", "Source": str(build_folder), "Target": f"{WORKSPACE}/build", "ReadOnly": False}],
        environment={SHARED_FOLDER: shared},
        working_dir=WORKSPACE,
    )


def run_container(
    client: Any,  # noqa: ANN401 -- kfp has no types
    image: str,
    command: list[str],
    volumes: dict[str, Any],
    **arguments: Any,  # noqa: ANN401
) -> int:
    """Run a container of an image that is on this machine; return its exit code."""
    # The image's entry point is mbd, and Kubernetes replaces it by a step's command: so must this.
    program, *rest = command
    container = client.containers.create(image=image, entrypoint=[program], command=rest, volumes=volumes, **arguments)
    try:
        container.start()
        for line in container.logs(stream=True, follow=True):
            print(line.decode(errors="replace"), end="", flush=True)  # noqa: T201 -- the log of a task is its output
        return int(container.wait()["StatusCode"])
    finally:
        container.remove(force=True)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

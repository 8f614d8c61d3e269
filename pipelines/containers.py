"""Steps as containers on this machine, with a correction of kfp's Docker runner.

kfp's runner lets containers remove themselves and takes "no such container" for success, so that a step that failed
fast counts as done. Here a container is started, watched to its end, asked for its exit code, and then removed.
(kfp 2.17; :func:`run_container` has the signature of the function that it replaces.)

A container runs as on the cluster: not as root, with a read-only root filesystem, without capabilities. It has no
network unless it is given one, of this machine only the pipeline's folder, the folder `build` and what the machine
remembers of logs (:mod:`mbd.log.memory`), and of its environment only the variables that `platform.secrets` names.
"""

import os
from pathlib import Path
from typing import Any

from kfp import local
from kfp.local import docker_task_handler

from mbd.errors import MbdError, UsageError
from mbd.kubeflow.data import SHARED_FOLDER
from mbd.log.memory import cache_folder
from mbd.params.platform import PlatformSettings

docker = docker_task_handler.docker  # here, a folder of this repository has the same name
WORKSPACE = "/workspace"
CACHE = "/var/cache"
_UID = 10001  # the images' own user
_ROOT, _PROCESS = "mbd.root", "mbd.process"


class DockerError(MbdError):
    """Docker did not do what was asked."""


def container_runner(platform: PlatformSettings, root: Path, shared: Path, network: str) -> local.DockerRunner:
    """Return kfp's runner, with :func:`run_container`, for a pipeline whose outputs go below `root`."""
    docker_task_handler.run_docker_container = run_container
    folder, known = Path("build").absolute(), cache_folder()
    shared_folders = {folder: f"{WORKSPACE}/build"}
    if known:
        shared_folders[known / "logs"] = f"{CACHE}/{known.name}/logs"
    for source in shared_folders:
        source.mkdir(parents=True, exist_ok=True)
    _prepare(platform.image, root)
    named = (variable for keys in platform.secrets.values() for variable in keys.values())
    return local.DockerRunner(
        user=_user(root, *shared_folders),
        read_only=True,
        tmpfs={"/tmp": ""},  # noqa: S108 -- the container's own
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        network_mode=network,
        mounts=[
            {"Type": "bind", "Source": str(source), "Target": target, "ReadOnly": False}
            for source, target in shared_folders.items()
        ],
        environment={
            **{name: os.environ[name] for name in named if name in os.environ},
            SHARED_FOLDER: str(shared),
            "XDG_CACHE_HOME": CACHE,
        },
        working_dir=WORKSPACE,
        labels={_ROOT: str(root), _PROCESS: str(os.getpid())},
    )


def run_container(
    client: Any,  # noqa: ANN401 -- kfp has no types
    image: str,
    command: list[str],
    volumes: dict[str, Any],
    **arguments: Any,
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


def _prepare(image: str, root: Path) -> None:
    """See that Docker answers and has the image; remove the containers of runs of this root that were killed."""
    try:
        client = docker.from_env()
        try:
            for left in client.containers.list(all=True, filters={"label": f"{_ROOT}={root}"}):
                if not Path("/proc", left.labels[_PROCESS]).exists():
                    left.remove(force=True)
            client.images.get(image)
        finally:
            client.close()
    except docker.errors.ImageNotFound as error:
        raise UsageError(
            "this image is not on this machine",
            key="platform.image",
            value=image,
            hint="`docker/build-images cpu` builds missing-by-design:cpu; docker pull brings another",
        ) from error
    except docker.errors.DockerException as error:
        raise DockerError(
            f"no docker answers: {error}", hint="start it, or set DOCKER_HOST; --runner subprocess needs none"
        ) from error


def _user(*folders: Path) -> str:
    """Return the user of the containers: the current one; root gives the folders to the image's own user."""
    if os.getuid():
        return f"{os.getuid()}:{os.getgid()}"
    for folder in folders:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _UID, _UID, follow_symlinks=False)
    return f"{_UID}:{_UID}"

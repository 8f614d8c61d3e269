"""A Docker of its own below a temporary folder, and a base image for builds that no registry has to answer for.

The stand-in for `python:3.11-slim` is Debian's own Python 3.11 on a minimal system, and the packages that a build asks
for: they are fetched outside, where pip is set up to find them, and pip inside knows only them.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.servers.process import need, running, wait_until

BASE = "python:3.11-slim"
_SUITE = "bookworm"  # the release of Debian whose Python is 3.11
_PIP_CONF = "[global]\nno-index = true\nfind-links = /opt/wheels\n"
_DAEMON = {"default-ulimits": {"nofile": {"Name": "nofile", "Soft": 4096, "Hard": 4096}}}


@dataclass(frozen=True)
class Docker:
    """A running Docker daemon."""

    host: str
    folder: Path
    """where its files are, in memory"""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the docker command. The old builder needs only the daemon."""
        return {"DOCKER_HOST": self.host, "DOCKER_BUILDKIT": "0"}

    def call(self, *arguments: str | Path, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a docker command, whatever its exit code."""
        return subprocess.run(
            ["docker", *map(str, arguments)],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )

    def output(self, *arguments: str | Path, seconds: float = 120) -> str:
        """Return the output of a docker command that has to succeed."""
        done = self.call(*arguments, seconds=seconds)
        if done.returncode:
            raise RuntimeError(f"docker {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout

    def layers(self, image: str, folder: Path) -> list[list[str]]:
        """Return the names of the files and folders in each layer of an image, lowest layer first."""
        archive = folder / "image.tar"
        self.output("save", "--output", archive, image)
        with tarfile.open(archive) as saved:
            manifest = saved.extractfile("manifest.json")
            assert manifest is not None
            (entry,) = json.load(manifest)
            found = []
            for name in entry["Layers"]:
                with tarfile.open(fileobj=saved.extractfile(name)) as layer:
                    found.append([member.removeprefix("./") for member in layer.getnames()])
        archive.unlink()
        return found


@contextmanager
def docker_daemon(folder: Path) -> Iterator[Docker]:
    """Run a daemon with all its files in `folder` and without a network; everything is removed afterwards."""
    need("dockerd", "containerd", "docker", "mmdebstrap")
    if os.geteuid() != 0:
        pytest.fail("the Docker daemon of the service tests needs root")
    config, log, socket = folder / "daemon.json", folder / "dockerd.log", folder / "docker.sock"
    command: list[str | Path] = [
        *("dockerd", "--config-file", config, "--host", f"unix://{socket}", "--pidfile", folder / "dockerd.pid"),
        *("--data-root", folder / "data", "--exec-root", folder / "exec"),
        *("--bridge=none", "--iptables=false", "--ip6tables=false"),
    ]
    docker = Docker(f"unix://{socket}", folder)
    with _in_memory(folder):
        config.write_text(json.dumps(_DAEMON))
        with running(command, log) as process:
            wait_until(lambda: docker.call("version").returncode == 0, process, log)
            yield docker


def bare_requirements(repository: Path) -> list[str]:
    """Return the requirements of a bare install."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    return [*project["build-system"]["requires"], *project["project"]["dependencies"]]


def import_base(docker: Docker, requirements: Sequence[str], constraints: Path) -> None:
    """Make the stand-in base image, with the packages that `requirements` and `constraints` lead to."""
    folder = docker.folder / "base"
    wheels, archive = folder / "wheels", folder / "base.tar"
    folder.mkdir()
    _download(wheels, requirements, constraints)
    (folder / "pip.conf").write_text(_PIP_CONF)
    hooks = ["ln -s python3 $1/usr/bin/python", f"copy-in {folder / 'pip.conf'} /etc", f"copy-in {wheels} /opt"]
    # git is in the image of the steps; a build without a network finds it installed.
    system = ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", "--include=python3,python3-pip,git"]
    _call(*system, *(f"--customize-hook={hook}" for hook in hooks), _SUITE, archive, TMPDIR=str(folder))
    docker.output("import", archive, BASE)
    shutil.rmtree(folder)


def add_packages(docker: Docker, name: str, requirements: Sequence[str], constraints: Path) -> None:
    """Make the image `name`: the stand-in base with more packages that a build may ask for."""
    folder = docker.folder / "more"
    folder.mkdir()
    _download(folder / "wheels", requirements, constraints)
    (folder / "Dockerfile").write_text(f"FROM {BASE}\nCOPY wheels /opt/wheels\n")
    docker.output("build", "--tag", name, folder, seconds=600)
    shutil.rmtree(folder)


def _download(wheels: Path, requirements: Sequence[str], constraints: Path) -> None:
    # This Python has the version of the base's, and so has its machine: what pip chooses here is right there. What
    # comes as source stays source, because its hash is the one that the image asks for.
    _call(sys.executable, "-m", "pip", "download", "-q", "-c", constraints, "-d", wheels, *requirements)


def _call(*command: str | Path, **environment: str) -> None:
    done = subprocess.run(
        list(map(str, command)),
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


@contextmanager
def _in_memory(folder: Path) -> Iterator[None]:
    """Mount memory at `folder` where it cannot hold overlays; images with a CUDA build of torch need a disk's room."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True).stdout
    if kind.strip() == "overlayfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        # The daemon may have left mounts of its own below.
        mounted = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((path for path in mounted if path.is_relative_to(folder)), reverse=True):
            subprocess.run(["umount", str(point)], check=True)

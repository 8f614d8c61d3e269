"""The pipelines `train` and `delete` in containers of our own image, one for each step, as on a cluster.

The image `cpu` is built from our Dockerfile on the stand-in base, with the extras that the steps need on synthetic
data: those for DVC remotes and raw media would add half a gigabyte and no other code path.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kfp.local.docker_task_handler import docker as docker_sdk

from mbd.files import read_json
from pipelines.containers import run_container
from tests.digests import path_digest
from tests.integration.command import mbd
from tests.integration.servers.docker import Docker, add_packages
from tests.pipelines.small import as_options, only_run

pytestmark = pytest.mark.services

REPOSITORY = Path(__file__).parents[2]
EXTRAS = ("train", "privacy", "pipelines")
BASE_WITH_PACKAGES = "python:3.11-slim-steps"
IMAGE = "missing-by-design:cpu"
USER = "10001:10001"
TRAIN = {"features", "train", "reference", "evaluate", "register"}
DELETE = {
    "fetch",
    "registered_reference",
    "delete",
    "evaluate",
    "attack",
    "certify",
    "publish",
    "purge",
    "require_purged",
}


@pytest.fixture(scope="module")
def image(docker: Docker, base: str, request: pytest.FixtureRequest) -> str:
    """The image of the steps, from `docker/build-images cpu`."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    requirements = [requirement for extra in EXTRAS for requirement in project[extra]]
    add_packages(docker, BASE_WITH_PACKAGES, requirements, REPOSITORY / "constraints.txt")
    started = time.monotonic()
    done = subprocess.run(
        [str(REPOSITORY / "docker" / "build-images"), "cpu"],
        env=os.environ | docker.environment | {"BASE": BASE_WITH_PACKAGES, "EXTRAS": ",".join(EXTRAS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    whole, beneath = (
        int(docker.output("image", "inspect", "--format", "{{.Size}}", name)) for name in (IMAGE, BASE_WITH_PACKAGES)
    )
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        took = f"built in {time.monotonic() - started:.0f} s with the extras {', '.join(EXTRAS)}"
        print(f"\n{IMAGE}: {(whole - beneath) / 1e6:.0f} MB above its base, {took}")
    return IMAGE


@pytest.fixture
def work_folder(tmp_path: Path) -> Path:
    """An empty folder to run pipelines in."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def command(name: str, *settings: str) -> list[str]:
    call = [sys.executable, "-c", "from mbd.cli import main; main()", "pipeline", "run", name, "--runner", "docker"]
    return [*call, *as_options("requests.revocable=[audio]", *settings)]


def run(work_folder: Path, docker: Docker, name: str, *settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(name, *settings),
        cwd=work_folder,
        env=os.environ | docker.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


class Watcher:
    """Looks at the containers of a run while they are there."""

    def __init__(self, docker: Docker) -> None:
        self._client = docker_sdk.DockerClient(base_url=docker.host)
        self.seen: dict[str, dict[str, Any]] = {}

    def look(self) -> list[str]:
        """Return the steps at work now."""
        there = self._client.containers.list(filters={"label": "mbd.root"})
        self.seen |= {container.id: container.attrs for container in there if container.id not in self.seen}
        return [step_of(container.attrs) for container in there]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(0.1):
                self.look()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._client.close()


def step_of(attributes: dict[str, Any]) -> str:
    """Return the step that a container runs: the name of the function that kfp calls."""
    words = attributes["Config"]["Cmd"]
    return str(words[words.index("--function_to_execute") + 1])


def test_killed_and_run_again_it_ends_with_a_certificate_that_verifies(
    docker: Docker, image: str, work_folder: Path, tmp_path: Path
) -> None:
    kill_in_the_middle(docker, work_folder)
    assert [path.name for path in (work_folder / "build" / "kfp").glob(".features-*")]  # left by the killed run
    for name, steps in {"train": TRAIN, "delete": DELETE}.items():
        watcher = Watcher(docker)
        with watcher.watching():
            done = run(work_folder, docker, name)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-3000:]
        check_each_step_was_a_container_of_its_own(watcher, steps)

    (new,) = (work_folder / "build" / "kfp").glob("mbd-delete-*")
    (old, trained) = sorted((work_folder / "build" / "kfp").glob("mbd-train-*"))
    assert not (old / "register").exists()
    receipt = read_json(new / "publish" / "published" / "receipt.json")
    place = f"file://build/store/certificates/{receipt['certificate']}"
    verified = mbd("verify", place, "--trust", "build/keys/trust.json", environment={}, folder=work_folder)
    assert (verified.returncode, "VERIFIED" in verified.stdout) == (0, True), verified.stdout + verified.stderr
    envelope = json.loads((new / "publish" / "published" / "certificate.json").read_bytes())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"

    assert docker.output("ps", "--all", "--quiet") == ""  # nor is one of the killed run left
    check_the_bytes_are_those_of_the_command_line(trained, new, tmp_path / "plain")


def kill_in_the_middle(docker: Docker, work_folder: Path) -> None:
    process = subprocess.Popen(
        command("train"),
        cwd=work_folder,
        env=os.environ | docker.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    watcher, end = Watcher(docker), time.monotonic() + 120
    while not {"train", "reference"} & set(watcher.look()):
        assert process.poll() is None and time.monotonic() < end, "it never came to train"
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()


def check_each_step_was_a_container_of_its_own(watcher: Watcher, steps: set[str]) -> None:
    *_, newest = (attributes["Config"]["Labels"]["mbd.process"] for attributes in watcher.seen.values())
    ours = [seen for seen in watcher.seen.values() if seen["Config"]["Labels"]["mbd.process"] == newest]
    assert {step_of(attributes) for attributes in ours} == steps
    assert len(ours) == len(steps)
    for attributes in ours:
        host = attributes["HostConfig"]
        assert attributes["Config"]["User"] == USER
        assert (host["ReadonlyRootfs"], host["CapDrop"], host["NetworkMode"]) == (True, ["ALL"], "none")


def check_the_bytes_are_those_of_the_command_line(trained: Path, outputs: Path, plain: Path) -> None:
    plain.mkdir()
    for name, given in {
        "features": ["features"],
        "model": ["train", "--features", "features"],
        "reference": ["train", "--features", "features", "--without", "audio"],
        "deleted": [
            *("delete", "--features", "features", "--model", "model", "--reference", "reference"),
            *("--modality", "audio"),
        ],
    }.items():
        done = mbd(*given, "--out", name, *as_options(), environment={}, folder=plain)
        assert done.returncode == 0, done.stderr
    (reference,) = trained.glob("for-loop-*/reference/reference")
    made = {"model": trained / "train" / "model", "reference": reference, "deleted": outputs / "delete" / "deleted"}
    for name, folder in made.items():
        assert path_digest(folder) == path_digest(plain / name), name


def test_a_step_that_fails_fails_the_run(docker: Docker, image: str, work_folder: Path) -> None:
    done = run(work_folder, docker, "train", "features.source.kind=npz", "features.source.path=none.npz")
    assert done.returncode == 1
    assert "none.npz" in done.stdout
    assert "Inner task failed: 'features'" in done.stderr
    assert {path.name for path in only_run(work_folder / "build" / "kfp").iterdir()} <= {"features"}


def test_an_image_that_is_not_there_is_named(docker: Docker, work_folder: Path) -> None:
    done = run(work_folder, docker, "train", "platform.image=missing-by-design:tpu")
    assert done.returncode == 2
    assert "missing-by-design:tpu" in done.stderr
    assert "docker/build-images" in done.stderr


def test_without_a_docker_that_is_said(docker: Docker, work_folder: Path) -> None:
    away = Docker(f"{docker.host}.away", docker.folder)
    done = run(work_folder, away, "train")
    assert done.returncode == 1
    assert "no docker answers" in done.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_a_container_is_the_one_that_counts(
    docker: Docker, image: str, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    client = docker_sdk.DockerClient(base_url=docker.host)
    try:
        words = ["python", "-c", f"print('hello'); raise SystemExit({code})"]
        assert run_container(client, image, words, {}, network_mode="none") == code
        assert "hello" in capfd.readouterr().out
        assert client.containers.list(all=True) == []
    finally:
        client.close()

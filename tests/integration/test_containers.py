"""The container images: built from our Dockerfile, run as a cluster runs them, with the bytes of the command line.

Every container has a read-only root, no capabilities and no network, and works as the image's own user. The image
`verifier` is built here. The image `cpu` is that one plus gigabytes of packages; here they are those of the virtual
environment, mounted beside it.
"""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest

from mbd import __version__
from mbd.trust.keys import make_keys
from tests.digests import path_digest
from tests.features.build import synthetic_set
from tests.integration.command import mbd
from tests.integration.servers.docker import BASE, Docker
from tests.training.build import SMALL

pytestmark = pytest.mark.services

REPOSITORY = Path(__file__).parents[2]
IMAGE = "missing-by-design:verifier"
UID = 10001
HARDENED = [
    "--rm",
    "--read-only",
    "--tmpfs=/tmp",
    "--network=none",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
]
DATA = [
    "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}",
    "features.source.synthetic.rows={train: 160, valid: 48, test: 64, calibration: 64}",
]


def _settings(settings: list[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def _build_images(*targets: str, docker: Docker, base: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(REPOSITORY / "docker" / "build-images"), *targets],
        env=os.environ | docker.environment | {"BASE": base},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.fixture(scope="module")
def built(docker: Docker, base: str) -> str:
    """What `docker/build-images verifier` prints."""
    done = _build_images("verifier", docker=docker, base=base)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder that the image's user may write to, mounted as the container's working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    os.chown(folder, UID, UID)
    return folder


def test_the_builder_gets_nothing_but_what_the_images_are_made_of(docker: Docker, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    docker.output("build", "--file", tmp_path / "Dockerfile", "--tag", "context", REPOSITORY)
    (names,) = docker.layers("context", tmp_path)
    assert {name.split("/")[0] for name in names} == {
        "src",
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "constraints.txt",
        "requirements-steps.txt",
        "requirements-verifier.txt",
    }
    assert {name.split("/")[1] for name in names if name.startswith("src/")} - {""} == {"mbd"}
    assert not [name for name in names if "__pycache__" in name]


def test_the_script_prints_id_and_size_of_what_it_built(docker: Docker, built: str) -> None:
    (image,) = json.loads(docker.output("image", "inspect", IMAGE))
    assert built.splitlines()[-1].split()[:3] == [IMAGE, image["Id"], str(round(image["Size"] / 1e6))]


def test_the_script_refuses_an_image_that_there_is_not(docker: Docker) -> None:
    done = _build_images("verifier", "tpu", docker=docker, base=BASE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "no image is called tpu" in done.stderr


def test_the_image_says_what_it_is_and_who_it_runs_as(docker: Docker, built: str) -> None:
    (image,) = json.loads(docker.output("image", "inspect", IMAGE))
    labels, config = image["Config"]["Labels"], image["Config"]
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert labels["org.opencontainers.image.title"] == "missing-by-design"
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.revision"].removesuffix("-modified") == revision.stdout.strip()
    assert (config["User"], config["Entrypoint"], config["WorkingDir"]) == (f"{UID}:{UID}", ["mbd"], "/workspace")
    assert not [variable for variable in config["Env"] if variable.startswith("PIP_")]


def test_our_layers_hold_the_program_its_user_and_an_empty_folder(docker: Docker, built: str, tmp_path: Path) -> None:
    beneath, *ours = docker.layers(IMAGE, tmp_path)
    assert "etc/pip.conf" in beneath, "the lowest layer is the stand-in base"
    names = {name for layer in ours for name in layer}
    program = {name for name in names if name.startswith("opt/mbd/")}
    accounts = {f"etc/{name}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid", ".pwd.lock")}
    accounts |= {f"{name}-" for name in accounts}
    assert names - program - accounts <= {"", ".", "etc", "opt", "opt/mbd", "workspace", "workspace/build"}
    packages = {Path(name).name for name in program if Path(name).parent.name == "site-packages"}
    assert {"mbd", "numpy"} <= packages
    assert not packages & {"pip", "setuptools", "torch", "dvc", "boto3", "kfp"}


def test_every_package_is_the_one_of_constraints(docker: Docker, built: str, tmp_path: Path) -> None:
    names = {Path(name).name for layer in docker.layers(IMAGE, tmp_path)[1:] for name in layer}
    found = {name.removesuffix(".dist-info") for name in names if name.endswith(".dist-info")}
    pinned = {_comparable(line) for line in (REPOSITORY / "constraints.txt").read_text().split()}
    assert {_comparable(name) for name in found} - pinned == {f"missing-by-design-{__version__}"}


def _comparable(distribution: str) -> str:
    return distribution.lower().replace("_", "-").replace("==", "-")


def test_help_and_parameters_are_those_of_the_command_line(docker: Docker, built: str, tmp_path: Path) -> None:
    for arguments in (["--help"], ["--version"], ["params", *_settings(SMALL)]):
        inside = docker.output("run", *HARDENED, IMAGE, *arguments)
        assert inside == mbd(*arguments, environment={}, folder=tmp_path).stdout
        assert inside


@pytest.mark.parametrize("user", [UID, 23456], ids=["its own user", "a user that it does not know"])
def test_features_have_the_same_bytes_as_outside(
    docker: Docker, built: str, work: Path, tmp_path: Path, user: int
) -> None:
    os.chown(work, user, user)
    arguments = ["features", *_settings(DATA), "--out"]
    mounted = [f"--volume={work}:/workspace", *([] if user == UID else [f"--user={user}:{user}"])]
    docker.output("run", *HARDENED, *mounted, IMAGE, *arguments, "build/features")
    outside = mbd(*arguments, tmp_path / "outside", environment={}, folder=tmp_path)
    assert outside.returncode == 0, outside.stderr
    inside = work / "build" / "features"
    assert path_digest(inside) == path_digest(tmp_path / "outside")
    assert {path.stat().st_uid for path in inside.rglob("*")} == {user}


def test_an_error_inside_ends_the_container_with_its_exit_code(docker: Docker, built: str, work: Path) -> None:
    arguments = ["features", "--set", "features.source.kind=npz", "--set", "features.source.path=none.npz"]
    done = docker.call("run", *HARDENED, f"--volume={work}:/workspace", IMAGE, *arguments, "--out", "set")
    assert done.returncode == 5
    assert "none.npz" in done.stderr
    assert not list(work.iterdir())


def test_a_key_that_others_may_read_is_taken_only_from_a_read_only_mount(
    docker: Docker, built: str, tmp_path: Path
) -> None:
    make_keys(tmp_path / "keys", "signer")
    for path in (tmp_path / "keys", *(tmp_path / "keys").iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o444)  # as Kubernetes mounts a secret
    sign = "from mbd.trust.keys import load_signer; load_signer('file:/keys/signer.pem')"
    ways = {"ro": 0, "rw": 1}
    for way, code in ways.items():
        mounted = f"--volume={tmp_path / 'keys'}:/keys:{way}"
        done = docker.call("run", *HARDENED, mounted, "--entrypoint=python", IMAGE, "-c", sign)
        assert done.returncode == code, done.stderr
    assert "other users can read the private key" in done.stderr


@pytest.mark.parametrize("backbone", ["joint", "lattice"])
def test_training_has_the_same_bytes_as_outside(
    docker: Docker, built: str, work: Path, tmp_path: Path, backbone: str
) -> None:
    data = synthetic_set(tmp_path / "set")
    settings = [*SMALL, f"model.backbone={backbone}", "model.lattice.components=4", "model.lattice.landmarks=8"]
    mounted = [f"--volume={work}:/workspace", f"--volume={data}:/data:ro"]
    packages = [f"--volume={sysconfig.get_path('purelib')}:/packages:ro", "--env=PYTHONPATH=/packages"]
    inside = ["train", "--features", "/data", "--out", "model", *_settings(settings)]
    docker.output("run", *HARDENED, *mounted, *packages, IMAGE, *inside)
    outside = ["train", "--features", "set", "--out", "model", *_settings(settings)]
    done = mbd(*outside, environment={}, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert path_digest(work / "model") == path_digest(tmp_path / "model")

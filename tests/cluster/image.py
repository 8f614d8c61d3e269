"""Our image as the node gets it, kept as an archive.

It is the image `verifier` of the Dockerfile. What `cpu` has on top, gigabytes of packages, are those of the virtual
environment: containerd mounts them read-only at `PACKAGES` into every container, and this image looks there.

Run as `python -m tests.cluster.image` where pip can find packages: the build itself has no network. The archive is kept
in the user's cache under the digest of everything that goes into it.
"""

import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from mbd.files import canonical_digest, sha256_file
from tests.cluster.tools import CACHE
from tests.integration.servers.docker import BASE, bare_requirements, docker_daemon, import_base

REPOSITORY = Path(__file__).parents[2]
IMAGE = "missing-by-design:cpu"
PACKAGES = "/packages"
_DOCKERFILE = f"FROM missing-by-design:verifier\nENV PYTHONPATH={PACKAGES}\n"
_PARTS = ("docker", "src/mbd", "pyproject.toml", "setup.py", "constraints.txt")


def packages() -> Path:
    """Return the folder of the packages that the image does not have itself."""
    found = find_spec("torch")
    assert found is not None and found.origin is not None
    return Path(found.origin).parents[1]


def archive() -> Path:
    """Return where the image of this source is kept."""
    listed = subprocess.run(["git", "ls-files", *_PARTS], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    digest = canonical_digest({name: sha256_file(REPOSITORY / name) for name in listed.stdout.splitlines()})
    return CACHE / f"image-{digest[:16]}.tar"


def build() -> None:
    """Build the image of this source, unless it is there; images of other sources are removed."""
    kept = archive()
    if kept.exists():
        return
    for old in CACHE.glob("image-*.tar"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder, docker_daemon(Path(folder)) as docker:
        import_base(docker, bare_requirements(REPOSITORY), REPOSITORY / "constraints.txt")
        environment = os.environ | docker.environment | {"BASE": BASE}
        subprocess.run([str(REPOSITORY / "docker" / "build-images"), "verifier"], env=environment, check=True)
        (docker.folder / "Dockerfile").write_text(_DOCKERFILE)
        docker.output("build", "--tag", IMAGE, "--file", docker.folder / "Dockerfile", REPOSITORY / "docker")
        half = kept.with_suffix(".half")
        docker.output("save", "--output", half, IMAGE)
        half.rename(kept)


if __name__ == "__main__":
    build()

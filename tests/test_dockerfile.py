"""The Dockerfile as hadolint reads it. Whether it builds and what comes out is seen in the service tests."""

import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

DOCKERFILE = Path(__file__).parents[1] / "docker" / "Dockerfile"
HADOLINT = which("hadolint", path=Path(sys.executable).parent) or which("hadolint")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
def test_hadolint_has_nothing_to_say() -> None:
    assert HADOLINT is not None
    done = subprocess.run([HADOLINT, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_base_is_named_by_its_digest() -> None:
    """A tag is moved to other images; every stage is made from the base, or from one that is."""
    words = [line.split() for line in DOCKERFILE.read_text().splitlines()]
    (base,) = [line[1].removeprefix("BASE=") for line in words if line[:1] == ["ARG"] and line[1].startswith("BASE=")]
    assert re.fullmatch(r"python:3\.11-slim@sha256:[0-9a-f]{64}", base)
    stages = [line for line in words if line[:1] == ["FROM"]]
    assert {line[1] for line in stages} <= {"$BASE", *(line[3] for line in stages)}

"""The Dockerfile as hadolint reads it. Whether it builds and what comes out is seen in the service tests."""

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

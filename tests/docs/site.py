"""The handbook, built as `make docs` builds it."""

import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import REPOSITORY


def build_site(folder: Path) -> Path:
    """Build the handbook into a folder, without a network; a warning is an error."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", REPOSITORY / "mkdocs.yml", "-d", folder],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder

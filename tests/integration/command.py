"""`mbd` as a user runs it: a process of its own."""

import os
import subprocess
from pathlib import Path

KERNELS = ("OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY")
"""Variables that choose numerical kernels, which containers do not inherit; other kernels round in another way."""


def mbd(
    *arguments: str | Path, environment: dict[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with `environment` on top of the process's own, without credentials or kernels of its own."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("AWS_") and key not in KERNELS}
    return subprocess.run(
        ["mbd", *map(str, arguments)],
        cwd=folder,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

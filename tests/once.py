"""What is the same for every worker of a run is made by the first that needs it; the others wait, and only read it."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

WORKER = "PYTEST_XDIST_WORKER" in os.environ
RUN = os.getppid() if WORKER else os.getpid()
"""process that lives as long as the run"""


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder of this name, which `make` has filled once in this run."""
    base = factory.getbasetemp()
    folder = (base.parent if WORKER else base) / name
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.with_suffix(".made").exists():
            shutil.rmtree(folder, ignore_errors=True)  # a worker may have failed half-way
            folder.mkdir()
            make(folder)
            folder.with_suffix(".made").touch()
    return folder

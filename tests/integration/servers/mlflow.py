"""An MLflow tracking server with SQLite, from its own package, in a virtual environment of its own."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.servers.process import answers, free_port, running, wait_until

SERVER = "mlflow==3.17.2"


@dataclass(frozen=True)
class MlflowServer:
    """A running server."""

    url: str
    artifacts: Path
    """the folder in which it keeps artifacts"""


@contextmanager
def mlflow_server(folder: Path) -> Iterator[MlflowServer]:
    """Run a server on a free loopback port, with its database and its artifacts in `folder`."""
    program, address, log = _installed(folder / "venv"), free_port(), folder / "mlflow.log"
    command: list[str | Path] = [program, "server", "--host", "127.0.0.1", "--port", str(address), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", folder / "artifacts"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in quiet.items():
            patch.setenv(name, value)
        with running(command, log) as process:
            wait_until(lambda: answers(f"http://127.0.0.1:{address}/health"), process, log, seconds=120)
            yield MlflowServer(f"http://127.0.0.1:{address}", folder / "artifacts")


def _installed(folder: Path) -> Path:
    """Install the server beside the packages that are there, without changing them; return its program."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "beside.pth").write_text(sysconfig.get_paths()["purelib"])
    done = subprocess.run(
        [folder / "bin" / "python", "-m", "pip", "install", "--quiet", SERVER],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    if done.returncode:
        pytest.skip(f"{SERVER} cannot be installed: {done.stderr[-300:]}")
    return folder / "bin" / "mlflow"

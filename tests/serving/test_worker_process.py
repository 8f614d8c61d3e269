"""The worker beside the server: started again when it ends, and ended with the server."""

import os
import signal
from pathlib import Path

import pytest

from mbd.cli.options import repeated
from mbd.serving.server import WorkerProcess
from tests.serving.site import Site
from tests.serving.waiting import wait_until


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A command that fails: `mbd` without such a parameter."""
    return ["params", "--set", "nothing=1"]


def test_a_worker_that_ends_is_started_again_with_growing_pauses(
    command: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    worker = WorkerProcess(command, first_pause=0.01)
    worker.start()
    wait_until(lambda: len([r for r in caplog.records if "is started again" in r.message]) >= 2)
    worker.stop()
    assert worker.pid is None
    assert "exit code 2" in caplog.text


def test_a_killed_worker_is_replaced_and_the_server_says_whether_one_runs(site: Site) -> None:
    given = ["--features", str(site.golden.folder), "--store", site.golden.url, *repeated("--set", site.options)]
    service = site.service()
    service.worker = WorkerProcess(["request", "run", "--watch", *given], first_pause=0.01)
    assert "mbd_worker_up 0.0" in service.metrics()
    service.start()
    wait_until(lambda: service.worker and service.worker.pid)
    assert "mbd_worker_up 1.0" in service.metrics()
    first = service.worker.pid
    assert first
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: service.worker and service.worker.pid not in (None, first))
    second = service.worker.pid
    service.stop()
    assert service.worker.pid is None
    assert not Path(f"/proc/{second}").exists()

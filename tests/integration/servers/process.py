"""A server as a child process: started, waited for, stopped by its own process id."""

import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pytest


def need(*programs: str) -> None:
    """Fail if a program is missing: a skipped test would look like one that passed."""
    missing = [program for program in programs if which(program) is None]
    if missing:
        pytest.fail(f"{', '.join(missing)} not installed; run tests/integration/install-servers")


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in the foreground of a child process; its output goes to `log`."""
    # Should this process be killed, the kernel ends the server.
    tied = ["setpriv", "--pdeathsig", "TERM", *map(str, command)]
    with log.open("ab") as stream:
        process = subprocess.Popen(
            tied, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, pass_fds=tuple(pass_fds)
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 60, pause: float = 0.1
) -> None:
    """Wait until `ready()`; fail with the end of the log if the server ends or takes too long."""
    end = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            state = "is not ready" if process.poll() is None else f"ended with {process.returncode}"
            raise RuntimeError(f"{process.args!r} {state}\n" + log.read_text(errors="replace")[-3000:])
        time.sleep(pause)


def answers(url: str) -> bool:
    """Return whether a GET of `url` is answered with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False

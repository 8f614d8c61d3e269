"""`mbd serve --worker`: the worker runs beside the server as a process of its own, and is started again if it ends.

It is `mbd request run --watch`: training takes no time or memory of the server, a crash of it is none of the
server, and its leases are those of every other worker.
"""

import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from mbd.background import Background

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_HEALTHY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LOG = logging.getLogger(__name__)


class WorkerProcess(Background):
    """Keeps one worker running."""

    def __init__(self, arguments: Sequence[str], *, first_pause: float = _FIRST_PAUSE) -> None:
        super().__init__("worker", _STOP_SECONDS)
        self._command = [sys.executable, "-c", "from mbd.cli import main; main()", *arguments]
        self._first_pause = first_pause
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not running."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        self._stop.set()
        process = self._process
        if process and process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            if process.poll() is None:
                process.kill()  # its lease runs out, and another worker takes over
        super().stop()

    def _run(self) -> None:
        pause = self._first_pause
        while not self._stop.is_set():
            started = time.monotonic()
            # Its results are in the store; what it logs goes where the log of the server goes.
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)  # noqa: S603 -- own command
            if self._stop.is_set():
                self._process.terminate()
            code = self._process.wait()
            if self._stop.is_set():
                return
            pause = self._first_pause if time.monotonic() - started > _HEALTHY_SECONDS else pause
            _LOG.warning("the worker ended with exit code %s and is started again in %.0f s", code, pause)
            self._stop.wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

"""The server process: a socket, uvicorn, and a graceful end on SIGTERM or SIGINT.

When it is asked to stop, it takes no new connections, ends event streams, and gives requests `serving.shutdown_seconds`
to end.

With `mbd serve --worker`, the worker runs beside it as a process of its own, and is started again if it ends. It is
`mbd request run --watch`: training takes no time or memory of the server, a crash of it is none of the server, and its
leases are those of every other worker.
"""

import asyncio
import logging
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from mbd import logs
from mbd.background import Background
from mbd.errors import UsageError
from mbd.serving.connections import Connections, GuardedProtocol, GuardedTls
from mbd.serving.service import Service

_KEEP_ALIVE_SECONDS = 5
_LARGEST_HEAD = 32 << 10
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_HEALTHY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listening:
    """Where and how to listen."""

    address: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    """PEM file of the TLS certificate, with its chain; None: plain HTTP, for a proxy or loopback"""
    key: Path | None = None

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("a TLS certificate and its key belong together", key="--tls-cert, --tls-key")
        for option, file in (("--tls-cert", self.certificate), ("--tls-key", self.key)):
            if file is not None and not file.is_file():
                raise UsageError("there is no such file", key=option, value=file)

    def open(self) -> socket.socket:
        """Return a socket that listens; UsageError if that is not possible."""
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        place = self.address, self.port
        try:
            return socket.create_server(place, family=family, backlog=socket.SOMAXCONN, dualstack_ipv6=both)
        except OSError as error:
            reason = str(error.strerror).partition(" (")[0]  # it ends with the address
            value = f"{self.address}:{self.port}"
            raise UsageError(f"cannot listen on this address: {reason}", key="--port", value=value) from error

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None: plain HTTP. A UsageError if the files are no such thing."""
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"the TLS certificate and its key cannot be used: {error.strerror or error}", file=self.certificate
            ) from error
        return context

    def url(self, opened: socket.socket) -> str:
        """Return the address that a socket listens on."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{'https' if self.certificate else 'http'}://{host}:{opened.getsockname()[1]}"


class _Server(uvicorn.Server):
    """Ends event streams before it waits for requests to end."""

    def __init__(self, config: uvicorn.Config, service: Service, connections: Connections) -> None:
        super().__init__(config)
        self._service, self._connections = service, connections

    async def on_tick(self, counter: int) -> bool:
        """Close connections that have waited for too long; uvicorn calls this ten times each second."""
        self._connections.close_late()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.stopping.set()
        super().handle_exit(sig, frame)


def serve(app: FastAPI, listening: Listening, started: Callable[[str], object]) -> None:
    """Serve an application until SIGTERM or SIGINT.

    Args:
        app: The application.
        listening: Where.
        started: Called with the address once the socket listens.

    """
    logs.serve()
    service: Service = app.state.service
    with listening.open() as opened:
        url = listening.url(opened)
        service.url = (service.params.serving.url or url).rstrip("/")
        server = server_of(app, listening)
        server.config.load()
        started(url)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises the signal again once it has stopped
            signal.signal(number, lambda *_: None)
        server.run(sockets=[opened])


def server_of(app: FastAPI, listening: Listening) -> uvicorn.Server:
    """Return the server of an application, with its limits."""
    service: Service = app.state.service
    connections, context = Connections(service.params.serving), listening.tls()

    def connect(**of_uvicorn: Any) -> asyncio.BaseProtocol:
        guarded = GuardedProtocol(connections, **of_uvicorn)
        return GuardedTls(guarded, context) if context else guarded

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=service.params.serving.shutdown_seconds,
        backlog=socket.SOMAXCONN,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        http=cast(type[asyncio.Protocol], connect),
        ws="none",
    )
    return _Server(config, service, connections)


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

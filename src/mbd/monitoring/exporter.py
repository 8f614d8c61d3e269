"""The exporter: a page for Prometheus with what the store says, looked up in the background.

    /metrics    the last look at the store, and how it went
    /healthz    200 while looks are taken at all
    /readyz     200 once a first look has ended; a store that is away is told by `mbd_store_up`, not by silence

While the store is away, what was known last is still told.
"""

import threading
import time
from collections.abc import Callable
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from platform import python_version

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from mbd import __version__
from mbd.errors import MbdError
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.monitoring.scan import Scanner, StoppedError
from mbd.monitoring.summary import EvidenceSamples, Summary

_EVIDENCE_KEPT = 4096
_GOODBYE_SECONDS = 5.0


class StoreMonitor:
    """Looks at the store every `pause` seconds, in a thread of its own, and tells what it saw last."""

    def __init__(self, scanner: Scanner, pause: float, say: Callable[[str], object]) -> None:
        self._scanner, self._pause, self._say = scanner, pause, say
        self._evidence = lru_cache(maxsize=_EVIDENCE_KEPT)(self._read_evidence)
        self._summary: Summary | None = None
        self._own = Samples()
        self._failures = self._read = 0
        self.looked = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looks at the store", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether looks are taken."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, also in the middle of a look."""
        self._stop.set()
        if self.alive:
            self._thread.join(_GOODBYE_SECONDS)

    def text(self) -> str:
        """Return everything as of now, as Prometheus reads it."""
        return (self._summary.text(time.time()) if self._summary else "") + self._own.text()

    def look(self) -> None:
        """Take one look."""
        own, start = Samples(), time.perf_counter()
        own.update([self._own])
        own.set(metrics.BUILD, 1, version=__version__, python=python_version())
        try:
            found = self._scanner.scan(self._stop.is_set)
            self._summary = Summary(found, time.time(), self._evidence)
        except StoppedError:
            return
        except Exception as error:  # whatever it is, the next look may come through
            self._failures += 1
            self._say(f"the store could not be looked at: {error if isinstance(error, MbdError) else repr(error)}")
            own.set(metrics.STORE_UP, 0)
        else:
            self._read += found.read
            own.set(metrics.STORE_UP, 1)
            own.set(metrics.SCAN_TIME, time.time())
            own.set(metrics.SCAN_DURATION, time.perf_counter() - start)
        own.set(metrics.SCAN_FAILURES, self._failures)
        own.set(metrics.SCAN_READ, self._read)
        self._own = own
        self.looked.set()

    def _read_evidence(self, digest: str, model: str, modalities: tuple[str, ...]) -> EvidenceSamples:
        return EvidenceSamples.of(self._scanner.leakage(digest), model, modalities)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(self._pause)


class _Page(BaseHTTPRequestHandler):
    """One request; its server is an :class:`Exporter`."""

    server: "Exporter"
    timeout = 10
    server_version = f"mbd-exporter/{__version__}"

    def do_GET(self) -> None:
        """Answer a GET."""
        watch = self.server.watch
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, watch.text().encode(), CONTENT_TYPE_PLAIN_0_0_4)
        elif path == "/healthz":
            self._answer(200, b"ok\n") if watch.alive else self._answer(503, b"nobody looks at the store\n")
        elif path == "/readyz":
            looked = watch.looked.is_set()
            self._answer(200, b"ok\n") if looked else self._answer(503, b"the first look at the store goes on\n")
        else:
            self._answer(404, b"there are /metrics, /healthz and /readyz\n")

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of every scrape."""


class Exporter(ThreadingHTTPServer):
    """The server; `serve_forever` until `shutdown`."""

    daemon_threads = True

    def __init__(self, address: str, port: int, watch: StoreMonitor) -> None:
        super().__init__((address, port), _Page)
        self.watch = watch

    @property
    def url(self) -> str:
        """Where it is."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"

"""The exporter: serves metrics of a store to Prometheus. A background thread scans the store.

    /metrics    the result of the last scan, and metrics about the scan itself
    /healthz    200 while the store monitor is running
    /readyz     200 once the first scan has ended; a store that is unreachable shows as `mbd_store_up 0`

While the store is unreachable, the last known values are served.
"""

import logging
import threading
import time
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from platform import python_version

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from mbd import __version__
from mbd.errors import MbdError
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.monitoring.store_samples import EvidenceSamples, StoreSamples
from mbd.monitoring.store_scanner import ScanStoppedError, StoreScanner

_EVIDENCE_KEPT = 4096
_STOP_SECONDS = 5.0
_log = logging.getLogger(__name__)


class StoreMonitor:
    """Scans a store every `interval` seconds in a background thread, and keeps the last result."""

    def __init__(self, scanner: StoreScanner, interval: float, retrain_days: int | None = None) -> None:
        self._scanner, self._interval, self._retrain_days = scanner, interval, retrain_days
        self._evidence = lru_cache(maxsize=_EVIDENCE_KEPT)(self._read_evidence)
        self._store: StoreSamples | None = None
        self._own = Samples()
        self._failures = self._read = 0
        self.scanned = threading.Event()
        """set once a first scan has ended, successfully or not"""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-monitor", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the background thread is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the background thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the background thread; a scan in progress is cancelled."""
        self._stop.set()
        if self.alive:
            self._thread.join(_STOP_SECONDS)

    def text(self) -> str:
        """Return all metrics as of now, in the text format of Prometheus."""
        return (self._store.text(time.time()) if self._store else "") + self._own.text()

    def scan(self) -> None:
        """Scan the store once. Failures are logged and counted, not raised."""
        own, start = Samples(), time.perf_counter()
        own.update([self._own])
        own.set(metrics.BUILD, 1, version=__version__, python=python_version())
        try:
            snapshot = self._scanner.scan(self._stop.is_set)
            self._store = StoreSamples(snapshot, time.time(), self._evidence, self._retrain_days)
        except ScanStoppedError:
            return
        except Exception as error:  # the next scan may succeed, whatever the reason
            self._failures += 1
            _log.warning("scanning the store failed: %s", error if isinstance(error, MbdError) else repr(error))
            own.set(metrics.STORE_UP, 0)
        else:
            self._read += snapshot.read
            own.set(metrics.STORE_UP, 1)
            own.set(metrics.SCAN_TIME, time.time())
            own.set(metrics.SCAN_DURATION, time.perf_counter() - start)
        own.set(metrics.SCAN_FAILURES, self._failures)
        own.set(metrics.SCAN_READ, self._read)
        self._own = own
        self.scanned.set()

    def _read_evidence(self, digest: str, model: str, modalities: tuple[str, ...]) -> EvidenceSamples:
        return EvidenceSamples.of(self._scanner.leakage(digest), model, modalities)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.scan()
            self._stop.wait(self._interval)


class _RequestHandler(BaseHTTPRequestHandler):
    """Answers one HTTP request."""

    server: "Exporter"
    timeout = 10

    def do_GET(self) -> None:
        """Answer a GET."""
        monitor = self.server.monitor
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, monitor.text().encode(), CONTENT_TYPE_PLAIN_0_0_4)
        elif path == "/healthz":
            self._answer(200, b"ok\n") if monitor.alive else self._answer(503, b"the store monitor is not running\n")
        elif path == "/readyz":
            ready = monitor.scanned.is_set()
            self._answer(200, b"ok\n") if ready else self._answer(503, b"the first scan of the store has not ended\n")
        else:
            self._answer(404, b"not found: use /metrics, /healthz or /readyz\n")

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not valid in plain text, without repeating any of it."""
        self.close_connection = True
        self.request_version = self.protocol_version  # as long as it is not known, no headers would be sent
        self._answer(code, f"{HTTPStatus(code).phrase}\n".encode())

    def version_string(self) -> str:
        """Return the header `Server`, without versions."""
        return "mbd-exporter"

    def log_message(self, format: str, *args: object) -> None:
        """Do not log every scrape."""


class Exporter(ThreadingHTTPServer):
    """The HTTP server; call `serve_forever`, and `shutdown` from another thread."""

    daemon_threads = True

    def __init__(self, address: str, port: int, monitor: StoreMonitor) -> None:
        super().__init__((address, port), _RequestHandler)
        self.monitor = monitor

    @property
    def url(self) -> str:
        """The address that it listens on."""
        host = str(self.server_address[0])
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}"

"""The store monitor: scans a store in a background thread, and keeps the last result, for metrics and for lists.

While the store is unreachable, the last known values stay, and `mbd_store_up` is 0. :mod:`mbd.serving` serves them.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import lru_cache
from platform import python_version

from mbd import __version__
from mbd.background import Background
from mbd.errors import MbdError
from mbd.monitoring import metrics
from mbd.monitoring.kubeflow_runs import add_last_runs
from mbd.monitoring.samples import Samples
from mbd.monitoring.store_samples import EvidenceSamples, StoreSamples
from mbd.monitoring.store_scanner import ScanStoppedError, StoreScanner, StoreSnapshot
from mbd.params.platform import PlatformSettings

_EVIDENCE_KEPT = 4096
_STOP_SECONDS = 5.0
_LOG = logging.getLogger(__name__)


class StoreMonitor(Background):
    """Scans a store every `interval` seconds in a background thread, and keeps the last result.

    A scan in progress is cancelled when it is stopped; :meth:`wake` starts one now.
    """

    def __init__(
        self,
        scanner: StoreScanner,
        interval: float,
        retrain_days: int | None = None,
        platform: PlatformSettings | None = None,
    ) -> None:
        """Scan with `scanner`; with a `platform`, its Kubeflow is asked for the last runs as well."""
        super().__init__("store-monitor", _STOP_SECONDS)
        self._scanner, self._interval, self._retrain_days = scanner, interval, retrain_days
        self._platform = platform
        self._evidence = lru_cache(maxsize=_EVIDENCE_KEPT)(self._read_evidence)
        self._store: StoreSamples | None = None
        self._own = Samples()
        self._own.set(metrics.BUILD, 1, version=__version__, python=python_version())
        for counter in (metrics.SCAN_FAILURES, metrics.SCAN_READ):
            self._own.child(counter)
        self.snapshot: StoreSnapshot | None = None
        """the result of the last scan that succeeded"""
        self.began = time.monotonic()
        """when the last scan began"""
        self.scanned = threading.Event()
        """set once a first scan has ended, successfully or not"""
        self.listeners: list[Callable[[StoreSnapshot], None]] = []
        """called with the result of each scan that succeeded, in the background thread"""

    def text(self) -> str:
        """Return all metrics as of now, in the text format of Prometheus."""
        return (self._store.text(time.time()) if self._store else "") + self._own.text()

    def scan(self) -> None:
        """Scan the store once. Failures are logged and counted, not raised."""
        own, start = self._own, time.perf_counter()
        self.began = time.monotonic()
        if self._platform:
            add_last_runs(own, self._platform)
        try:
            self.snapshot = snapshot = self._scanner.scan(self._stop.is_set)
            self._store = StoreSamples(snapshot, time.time(), self._evidence, self._retrain_days)
        except ScanStoppedError:
            return
        except Exception as error:  # the next scan may succeed, whatever the reason
            _LOG.warning("scanning the store failed: %s", error if isinstance(error, MbdError) else repr(error))
            own.set(metrics.STORE_UP, 0)
            own.count(metrics.SCAN_FAILURES)
        else:
            own.count(metrics.SCAN_READ, snapshot.read)
            own.set(metrics.SCAN_TIME, time.time())
            own.set(metrics.SCAN_DURATION, time.perf_counter() - start)
            own.set(metrics.STORE_UP, 1)
            self._notify(snapshot)
        self.scanned.set()

    def _notify(self, snapshot: StoreSnapshot) -> None:
        for listener in self.listeners:
            try:
                listener(snapshot)
            except Exception as error:  # a listener must not end the scans
                _LOG.warning("what follows a scan failed: %s", error if isinstance(error, MbdError) else repr(error))

    def _read_evidence(self, digest: str, model: str, modalities: tuple[str, ...]) -> EvidenceSamples:
        return EvidenceSamples.of(self._scanner.leakage(digest), model, modalities)

    def _run(self) -> None:
        self._repeat(self.scan, self._interval)

"""The metrics of inference, as :mod:`mbd.monitoring.metrics` defines them, in a registry of their own."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from mbd.monitoring import metrics
from mbd.monitoring.metrics import Metric

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_ROWS = tuple(2**power for power in range(13))
Kind = TypeVar("Kind", Counter, Gauge)


class Instruments:
    """Counters, gauges and histograms of one model server."""

    def __init__(self, models: Iterable[str]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=False)
        self.seconds = self._histogram(metrics.INFERENCE_SECONDS, _SECONDS)
        self.rows = self._histogram(metrics.INFERENCE_ROWS, _ROWS)
        self.queued = self._make(Gauge, metrics.INFERENCE_QUEUED)
        self.refused = self._make(Counter, metrics.INFERENCE_REFUSED)
        self.ready = self._make(Gauge, metrics.INFERENCE_READY)
        self.release = self._make(Gauge, metrics.INFERENCE_RELEASE)
        self.swaps = self._make(Counter, metrics.INFERENCE_SWAPS)
        self.failed_loads = self._make(Counter, metrics.INFERENCE_LOADS_FAILED)
        self.log = self._make(Gauge, metrics.INFERENCE_LOG)
        for name in models:  # what has not happened yet is 0, not absent
            self.ready.labels(name).set(0)
            for instrument in (self.swaps, self.failed_loads, self.seconds, self.rows):
                instrument.labels(name)

    def text(self) -> str:
        """Return all values in the text format of Prometheus."""
        return generate_latest(self.registry).decode()

    def _make(self, kind: type[Kind], metric: Metric) -> Kind:
        return kind(metric.name, metric.help, metric.labels, registry=self.registry)

    def _histogram(self, metric: Metric, buckets: Sequence[float]) -> Histogram:
        return Histogram(metric.name, metric.help, metric.labels, registry=self.registry, buckets=buckets)

"""Values of metrics, to be scraped, pushed or written to a textfile: the one way in which anything is measured.

    samples = Samples()
    samples.set(metrics.LOG_ENTRIES, 7)
    samples.count(metrics.HTTP_LIMITED, reason="rate")
    samples.observe(metrics.INFERENCE_SECONDS, 0.02, model="sentiment")
    samples.text()

There is no global registry: each collection of samples is independent. Creation times are not exposed.
"""

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from mbd.monitoring.metrics import Metric

disable_created_metrics()  # type: ignore[no-untyped-call]


class SampleList(list[tuple[Metric, float, dict[str, str]]]):
    """Values that are kept to be set later."""

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Keep a value."""
        self.append((metric, value, labels))


class Samples:
    """Values by metric and labels; the labels must be exactly those of the metric."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._instruments: dict[Metric, Any] = {}

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Set the value of a gauge."""
        self.child(metric, **labels).set(value)

    def count(self, metric: Metric, amount: float = 1, /, **labels: str) -> None:
        """Add to a counter."""
        self.child(metric, **labels).inc(amount)

    def observe(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Add a value to a histogram."""
        self.child(metric, **labels).observe(value)

    def value(self, metric: Metric, /, **labels: str) -> float | None:
        """Return a value, or None if there is none."""
        return self.registry.get_sample_value(metric.name, labels)

    def update(self, samples: Iterable[tuple[Metric, float, dict[str, str]]]) -> None:
        """Set several gauges."""
        for metric, value, labels in samples:
            self.set(metric, value, **labels)

    def child(self, metric: Metric, /, **labels: str) -> Any:  # noqa: ANN401 -- of one of three classes
        """Return what holds a value; from then on it is shown, as 0 at first."""
        if metric not in self._instruments:
            options: dict[str, Any] = {"buckets": metric.buckets} if metric.buckets else {}
            made = _CLASSES[metric.kind](metric.name, metric.help, metric.labels, registry=self.registry, **options)
            self._instruments[metric] = made
        return self._instruments[metric].labels(**labels) if metric.labels else self._instruments[metric]

    def text(self) -> str:
        """Return the samples in the text format of Prometheus."""
        return generate_latest(self.registry).decode()


_CLASSES: dict[str, Any] = {"gauge": Gauge, "counter": Counter, "histogram": Histogram}

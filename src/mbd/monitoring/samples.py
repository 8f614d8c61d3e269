"""Values of metrics at one moment, to be scraped, pushed or written to a textfile.

There is no global registry: each collection of samples is independent. Creation times are not exposed.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from mbd.monitoring.metrics import ALL, Metric

_INDEX = {metric: index for index, metric in enumerate(ALL)}


class Samples(Collector):
    """Values by metric and labels."""

    def __init__(self) -> None:
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}

    def set(self, metric: Metric, value: float, /, **labels: str) -> None:
        """Set a value; the labels must be exactly those of the metric."""
        if labels.keys() != set(metric.labels):
            raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
        self._values.setdefault(metric, {})[tuple(labels[name] for name in metric.labels)] = float(value)

    def value(self, metric: Metric, /, **labels: str) -> float | None:
        """Return a value, or None if there is none."""
        return self._values.get(metric, {}).get(tuple(labels[name] for name in metric.labels))

    def update(self, others: Iterable["Samples"]) -> None:
        """Copy the values of others, replacing equal metrics and labels."""
        for other in others:
            for metric, values in other._values.items():
                self._values.setdefault(metric, {}).update(values)

    def collect(self) -> Iterator[Family]:
        """Yield the metrics as families of the Prometheus client, in the order of their definition."""
        for metric in sorted(self._values, key=_INDEX.__getitem__):
            make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = make(metric.name, metric.help, labels=metric.labels)
            for labels, value in sorted(self._values[metric].items()):
                family.add_metric(labels, value)
            yield family

    def registry(self) -> CollectorRegistry:
        """Return a registry that holds only these samples."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry

    def text(self) -> str:
        """Return the samples in the text format of Prometheus."""
        return generate_latest(self.registry()).decode()

"""Values of metrics: the one way in which anything is measured, scraped, pushed or written to a textfile.

    samples = Samples()
    samples.set(metrics.LOG_ENTRIES, 7)
    samples.count(metrics.HTTP_LIMITED, reason="rate")
    samples.observe(metrics.INFERENCE_SECONDS, 0.02, model="sentiment")
    samples.text()

There is no global registry: each collection of samples is independent. Creation times are not exposed.

A Pushgateway, or a textfile that a node exporter reads, gets samples grouped by step and model. New samples replace
those of the same metric in their group; other metrics of the group stay. So the report of a failure keeps the time of
the last success. Prometheus scrapes the gateway with `honor_labels: true`.
"""

import os
from collections.abc import Iterable
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
    pushadd_to_gateway,
)
from prometheus_client.exposition import basic_auth_handler
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from mbd.errors import MbdError
from mbd.files import write_file
from mbd.monitoring.metrics import ALL, Metric
from mbd.params.operations import MonitoringSettings
from mbd.remote_errors import classify_error

disable_created_metrics()  # type: ignore[no-untyped-call]


Sample = tuple[Metric, float, dict[str, str]]
"""a value of a gauge, and its labels"""


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

    def update(self, samples: Iterable[Sample]) -> None:
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


_BY_NAME = {metric.name: metric for metric in ALL}


class PushError(MbdError):
    """The Pushgateway did not accept the metrics."""


def push(settings: MonitoringSettings, group: dict[str, str], samples: Samples) -> None:
    """Push the samples of one group.

    Raises:
        PushError: the Pushgateway is unreachable or refuses them.

    """
    url = settings.pushgateway or ""
    user, password = os.environ.get("PUSHGATEWAY_USER"), os.environ.get("PUSHGATEWAY_PASSWORD")
    try:
        pushadd_to_gateway(
            url,
            job=settings.job,
            registry=samples.registry,
            grouping_key=group,
            timeout=settings.timeout_seconds,
            handler=partial(basic_auth_handler, username=user, password=password),
        )
    except (OSError, ValueError, HTTPException) as error:
        raise PushError(
            f"the Pushgateway did not accept the metrics: {classify_error(error)[1]}",
            key="monitoring.pushgateway",
            value=url,
            hint="`mbd doctor` checks the connection",
        ) from error


def write_textfile(folder: Path, group: dict[str, str], samples: Samples) -> Path:
    """Write the samples of one group to its file in `folder`, and return the file."""
    file = folder / ("mbd-" + "-".join(group.values()) + ".prom")
    new = {family.name for family in samples.registry.collect()}
    for family in _read_textfile(file):
        if family.name in _BY_NAME and family.name not in new:
            samples.update((_BY_NAME[family.name], sample.value, sample.labels) for sample in family.samples)
    write_file(file, samples.text())
    return file


def _read_textfile(file: Path) -> list[Family]:
    """Return the metrics in a file; none if it is missing or not readable."""
    try:
        return list(text_string_to_metric_families(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return []

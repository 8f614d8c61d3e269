"""Deliver samples to a Pushgateway, or to a textfile that a node exporter reads.

Samples are grouped by step and model. New samples replace those of the same metric in their group; other metrics of the
group stay. So the report of a failure keeps the time of the last success. Prometheus scrapes the gateway with
`honor_labels: true`.
"""

import os
from functools import partial
from http.client import HTTPException
from pathlib import Path

from prometheus_client import pushadd_to_gateway
from prometheus_client.exposition import basic_auth_handler
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from mbd.errors import MbdError
from mbd.files import write_file
from mbd.monitoring.metrics import ALL
from mbd.monitoring.samples import Samples
from mbd.params.operations import MonitoringSettings
from mbd.remote_errors import classify_error

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

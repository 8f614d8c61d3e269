"""Samples to a Pushgateway, by POST (`pushadd`): metrics of other names that the group has already stay.

A group is a step and a model, so groups are as few as these. Prometheus scrapes the gateway with `honor_labels: true`.
"""

import os
from functools import partial
from http.client import HTTPException

from prometheus_client import pushadd_to_gateway
from prometheus_client.exposition import basic_auth_handler

from mbd.errors import MbdError
from mbd.monitoring.samples import Samples
from mbd.params.operations import MonitoringSettings
from mbd.remote_errors import classify_error


class PushError(MbdError):
    """The Pushgateway did not take the metrics."""


def push(settings: MonitoringSettings, group: dict[str, str], samples: Samples) -> None:
    """Push the samples of one group; PushError if that fails."""
    url = settings.pushgateway or ""
    user, password = os.environ.get("PUSHGATEWAY_USER"), os.environ.get("PUSHGATEWAY_PASSWORD")
    try:
        pushadd_to_gateway(
            url,
            job=settings.job,
            registry=samples.registry(),
            grouping_key=group,
            timeout=settings.timeout_seconds,
            handler=partial(basic_auth_handler, username=user, password=password),
        )
    except (OSError, ValueError, HTTPException) as error:
        raise PushError(
            f"the Pushgateway did not take the metrics: {classify_error(error)[1]}",
            key="monitoring.pushgateway",
            value=url,
            hint="`mbd doctor` looks at it",
        ) from error

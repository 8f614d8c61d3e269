"""What is pushed to the gateway arrives in Prometheus."""

import pytest
from prometheus_client import CollectorRegistry, Gauge, pushadd_to_gateway

from tests.integration.servers.prometheus import Prometheus

pytestmark = pytest.mark.services


def test_a_pushed_value_is_scraped_under_its_own_job(pushgateway: str, prometheus: Prometheus) -> None:
    registry = CollectorRegistry()
    Gauge("mbd_tests_pushed_ratio", "A number on its way.", ["modality"], registry=registry).labels("audio").set(0.25)
    pushadd_to_gateway(pushgateway, job="mbd-tests", registry=registry)
    assert prometheus.value('mbd_tests_pushed_ratio{job="mbd-tests", modality="audio"}') == 0.25

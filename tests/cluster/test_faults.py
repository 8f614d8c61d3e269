"""What goes wrong on a cluster: pods that vanish, a store that is away, two workers at once, schedules."""

import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mbd.formats.request import DeletionRequest
from mbd.steps import verify
from tests.cluster.node import ADDRESS, Cluster
from tests.cluster.service import Service, deployed
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.cluster

LEASE_SECONDS = 20


@pytest.fixture
def service(
    request: pytest.FixtureRequest,
    kubernetes: Cluster,
    s3: S3,
    pushgateway: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """A service for one test, so that nothing of another fault is in its store."""
    where = "mbd-" + request.node.name.removeprefix("test_").replace("_", "-")[:40].strip("-")
    with deployed(kubernetes, s3, tmp_path_factory.mktemp("service"), where) as found:
        yield found
        kubernetes.kubectl("delete", "namespace", where, "--wait=false")


def submitted(service: Service) -> str:
    return service.requests.submit(service.params.certificate.model, ["audio"], due_days=30).id


def certified_once(service: Service, identifier: str) -> DeletionRequest:
    """See that one certificate is published, that it verifies, and that the request names it."""
    request = service.requests.get(identifier)
    assert Counter(event.state for event in request.history)["certified"] == 1, request.history
    assert service.certificates() == {request.certificate}
    place = f"{service.params.store.url}/certificates/{request.certificate}"
    assert verify.run(service.params, place, trust=Path(service.params.certificate.trust)).verified
    return request


@contextmanager
def store_away() -> Iterator[None]:
    """Let the node refuse what pods send to the store."""
    rule = ["INPUT", "--protocol", "tcp", "--dport", "9000", "--jump", "REJECT", "--reject-with", "tcp-reset"]
    subprocess.run(["iptables", "--insert", *rule], check=True)
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((ADDRESS, 9000), timeout=5)
        yield
    finally:
        subprocess.run(["iptables", "--delete", *rule], check=True)


def test_a_pod_that_is_deleted_at_work_publishes_nothing_and_the_next_one_does_the_work(service: Service) -> None:
    asked = submitted(service)
    service.start("mbd-requests", "killed")
    pod = service.working_pod("killed", "requests")
    service.cluster.until(lambda: service.requests.get(asked).state == "running", "the request is claimed")
    service.cluster.kubectl("delete", "pod", pod, service.within, "--grace-period=0", "--force")
    assert service.ended("killed") == "Failed"
    assert service.certificates() == set()
    time.sleep(LEASE_SECONDS)
    service.run("mbd-requests", "next")
    certified_once(service, asked)


def test_a_store_that_is_away_for_half_a_minute_leaves_nothing_half_published(service: Service) -> None:
    asked = submitted(service)
    service.start("mbd-requests", "away")
    service.working_pod("away", "requests")
    service.cluster.until(lambda: service.requests.get(asked).state == "running", "the request is claimed")
    with store_away():
        time.sleep(30)
    if service.ended("away") == "Failed":
        assert service.certificates() == set()
        time.sleep(LEASE_SECONDS)
        service.run("mbd-requests", "next")
    certified_once(service, asked)


def test_of_two_workers_at_once_one_does_the_work(service: Service) -> None:
    asked = submitted(service)
    for job in ("first", "second"):
        service.start("mbd-requests", job)
    assert [service.ended(job) for job in ("first", "second")] == ["Complete", "Complete"]
    certified_once(service, asked)


def test_the_schedule_fires_by_itself_and_no_longer_when_it_is_suspended(service: Service) -> None:
    def jobs() -> set[str]:
        return {job["metadata"]["name"] for job in service.cluster.get("jobs", service.within)["items"]}

    def change(spec: str) -> None:
        service.cluster.kubectl("patch", "cronjob", "mbd-requests", service.within, "--type=merge", f"--patch={spec}")

    asked = submitted(service)
    change('{"spec": {"schedule": "* * * * *"}}')
    service.cluster.until(lambda: bool(jobs()), "the schedule fires", 90)
    (fired,) = jobs()
    change('{"spec": {"suspend": true}}')
    assert service.ended(fired) == "Complete"
    certified_once(service, asked)
    time.sleep(65)
    assert jobs() == {fired}

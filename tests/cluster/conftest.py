"""The cluster for the whole run, and substitutes for the services that our manifests refer to."""

from collections.abc import Iterator

import pytest

from tests.cluster import image
from tests.cluster.node import ADDRESS, Cluster, cluster
from tests.integration.servers.prometheus import push_gateway
from tests.integration.servers.rgw import S3, rados_gateway


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[Cluster]:
    """A cluster whose one node is ready, and has our image."""
    with cluster() as started:
        started.import_image(image.archive())
        yield started


@pytest.fixture(scope="session")
def s3(kubernetes: Cluster) -> Iterator[S3]:
    """A real S3 server where pods find `http://s3:9000`, whatever their namespace."""
    with rados_gateway(kubernetes.folder / "rgw", f"{ADDRESS}:9000") as server:
        yield server


@pytest.fixture(scope="session")
def pushgateway(kubernetes: Cluster) -> Iterator[str]:
    """A Pushgateway where pods find `http://pushgateway.monitoring:9091`."""
    with push_gateway(kubernetes.folder / "pushgateway", f"{ADDRESS}:9091") as url:
        yield url

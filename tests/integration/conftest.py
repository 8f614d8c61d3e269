"""Servers for the whole run: each starts when the first test needs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.servers.chromium import Browser, chromium
from tests.integration.servers.docker import BASE, Docker, bare_requirements, docker_daemon, import_base
from tests.integration.servers.prometheus import Prometheus, prometheus_server, push_gateway
from tests.integration.servers.rgw import S3, rados_gateway
from tests.integration.servers.versity import versity_gateway


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A real S3 server and the keys of a user."""
    with rados_gateway(tmp_path_factory.mktemp("rgw")) as server:
        yield server


@pytest.fixture(scope="session")
def versioned_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A real S3 server that compares before it writes in buckets with versions, too."""
    with versity_gateway(tmp_path_factory.mktemp("versity")) as server:
        yield server


@pytest.fixture(scope="session")
def pushgateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Pushgateway."""
    with push_gateway(tmp_path_factory.mktemp("pushgateway")) as url:
        yield url


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory, pushgateway: str) -> Iterator[Prometheus]:
    """A Prometheus that scrapes that Pushgateway."""
    with prometheus_server(tmp_path_factory.mktemp("prometheus"), pushgateway) as server:
        yield server


@pytest.fixture(scope="session")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    """A Docker daemon without images."""
    with docker_daemon(tmp_path_factory.mktemp("docker")) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A tab of a headless Chromium."""
    with chromium(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture(scope="session")
def base(docker: Docker) -> str:
    """A base image with the packages of the bare install."""
    repository = Path(__file__).parents[2]
    import_base(docker, bare_requirements(repository), repository / "constraints.txt")
    return BASE

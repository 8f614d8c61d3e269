"""Commands of the handbook and the README that need a server or a minute of time."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import SERVICES, blocks, pages_with
from tests.docs.workspace import Workspace
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.services

BUCKET = "deletions"


@pytest.fixture(scope="module")
def s3(versioned_s3: S3) -> S3:
    """Certificates are locked, which takes a bucket with versions."""
    return versioned_s3


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, quick: Path) -> Path:
    folder = tmp_path_factory.mktemp("handbook")
    Workspace(folder / "workspace", quick).fill()
    return folder


@pytest.fixture(scope="module")
def servers(s3: S3, pushgateway: str) -> dict[str, str]:
    """The environment that pages speak of, and the bucket that they name."""
    s3.client().create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    return {**s3.environment, "S3_ENDPOINT": s3.endpoint, "PUSHGATEWAY": pushgateway}


@pytest.mark.parametrize("page", pages_with(SERVICES), ids=lambda page: page.name)
def test_a_reader_with_servers_can_follow(
    page: Path, prepared: Path, quick: Path, servers: dict[str, str], tmp_path: Path
) -> None:
    subprocess.run(["cp", "-a", f"{prepared}/.", tmp_path], check=True)
    workspace = Workspace(tmp_path / "workspace", quick, servers)
    for block in blocks(page, SERVICES):
        workspace.run(block)

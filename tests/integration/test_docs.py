"""Commands of the handbook and the README that need a server or a minute of time."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import SERVICES, blocks, pages_with
from tests.docs.workspace import Workspace, workspace_to_copy
from tests.integration.servers.rgw import S3
from tests.quick_mbd import quick_mbd

pytestmark = pytest.mark.services

BUCKET = "deletions"


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_mbd(tmp_path_factory.mktemp("quick") / "venv") as folder:
        yield folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, venv: Path) -> Path:
    return workspace_to_copy(tmp_path_factory.mktemp("handbook"), venv)


@pytest.fixture(scope="module")
def servers(s3: S3, pushgateway: str) -> dict[str, str]:
    """The environment that pages speak of, and the bucket that they name."""
    s3.client().create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
    return {**s3.environment, "S3_ENDPOINT": s3.endpoint, "PUSHGATEWAY": pushgateway}


@pytest.mark.parametrize("page", pages_with(SERVICES), ids=lambda page: page.name)
def test_a_reader_with_servers_can_follow(
    page: Path, prepared: Path, venv: Path, servers: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(prepared, tmp_path / "workspace", symlinks=True)
    workspace = Workspace(tmp_path / "workspace", venv, servers)
    for block in blocks(page, SERVICES):
        workspace.run(block)

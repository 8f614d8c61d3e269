"""Every command in the handbook and the README works, page by page, from top to bottom."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import PYTHON, RUN, blocks, pages_with
from tests.docs.workspace import Workspace, workspace_to_copy
from tests.quick_mbd import quick_mbd


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with quick_mbd(tmp_path_factory.mktemp("quick") / "venv") as folder:
        yield folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, venv: Path) -> Path:
    """The workspace after `make run`, made once for all workers of this run."""
    mine = tmp_path_factory.getbasetemp()
    return workspace_to_copy((mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine) / "handbook", venv)


@pytest.mark.long
@pytest.mark.parametrize("page", pages_with(RUN, PYTHON), ids=lambda page: page.name)
def test_a_reader_can_follow(page: Path, prepared: Path, venv: Path, tmp_path: Path) -> None:
    shutil.copytree(prepared, tmp_path / "workspace", symlinks=True)
    workspace = Workspace(tmp_path / "workspace", venv)
    for block in blocks(page, RUN, PYTHON):
        workspace.run(block)

"""Every command in the handbook and the README works, page by page, from top to bottom."""

import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import PYTHON, RUN, blocks, pages_with
from tests.docs.workspace import Workspace
from tests.once import once


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, quick: Path) -> Path:
    """The machine with the workspace after `make run`."""
    return once(tmp_path_factory, "handbook", lambda folder: Workspace(folder / "workspace", quick).fill())


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with(RUN, PYTHON), ids=lambda page: page.name)
def test_a_reader_can_follow(page: Path, prepared: Path, quick: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-a", f"{prepared}/.", tmp_path], check=True)
    workspace = Workspace(tmp_path / "workspace", quick)
    for block in blocks(page, RUN, PYTHON):
        workspace.run(block)

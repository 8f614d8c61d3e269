"""Every test runs in an empty folder of its own, so that no `params.yaml` or `build/` of a user affects it."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _empty_working_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def real_mosi() -> Path:
    """CMU-MOSI features, which the repository does not hold: MBD_TEST_DATA names the folder that has mosi.npz."""
    folder = os.environ.get("MBD_TEST_DATA")
    if folder is None:
        pytest.skip("MBD_TEST_DATA is not set")
    return Path(folder) / "mosi.npz"

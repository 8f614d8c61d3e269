"""Every test runs in an empty folder of its own, so that no `params.yaml` or `build/` of a user has a say."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _empty_working_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    return folder

"""Models, deletions and keys that all purge tests share; each test gets a workspace with copies of them."""

import tempfile
from pathlib import Path

import pytest

from tests.certificate.build import ModelWorkspace, make_home
from tests.features.dvc_repository import isolated
from tests.purge.workspace import PurgeWorkspace


@pytest.fixture(scope="session")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> ModelWorkspace:
    """Data, a joint model, a lattice and keys; deletions are made on first use."""
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def first_estate(
    model_workspace: ModelWorkspace, tmp_path_factory: pytest.TempPathFactory, quick: Path
) -> PurgeWorkspace:
    """A repository whose data has been pushed to a folder; tests work in copies of it."""
    folder = tmp_path_factory.mktemp("workspace")
    purge_workspace = PurgeWorkspace.make(
        model_workspace, folder, {"backup": "../../remote"}, environment=isolated(folder / "machine", quick)
    )
    purge_workspace.repository.dvc("push", "--quiet")
    return purge_workspace


@pytest.fixture
def purge_workspace(first_estate: PurgeWorkspace, tmp_path: Path, alone: dict[str, str]) -> PurgeWorkspace:
    """A repository for one test, with old copies in every place."""
    purge_workspace = first_estate.moved_to(tmp_path, alone)
    purge_workspace.scatter()
    return purge_workspace


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: Path) -> dict[str, str]:
    """Restrict git, DVC and the search of temporary folders to the folder of the test."""
    temporary = tmp_path / "machine" / "tmp"
    temporary.mkdir(parents=True)
    environment = isolated(tmp_path / "machine", quick) | {"TMPDIR": str(temporary)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return environment

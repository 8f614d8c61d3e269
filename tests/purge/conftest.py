"""Models, deletions and keys that all tests of purging share; each gets copies of them in an estate of its own."""

import tempfile
from pathlib import Path

import pytest

from tests.certificate.build import Home, make_home
from tests.features.dvc_repository import isolated
from tests.purge.estate import Estate


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Data, a joint model, a lattice, and keys; deletions are made at first use."""
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def first_estate(home: Home, tmp_path_factory: pytest.TempPathFactory) -> Estate:
    """A repository whose data has been pushed to a folder; tests work in copies of it."""
    folder = tmp_path_factory.mktemp("estate")
    estate = Estate.make(home, folder, {"backup": "../../remote"}, environment=isolated(folder / "machine"))
    estate.repository.dvc("push", "--quiet")
    return estate


@pytest.fixture
def estate(first_estate: Estate, tmp_path: Path, alone: dict[str, str]) -> Estate:
    """A repository of the test's own, with old copies in every place."""
    estate = first_estate.moved_to(tmp_path, alone)
    estate.scatter()
    return estate


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Let git, DVC and the search of temporary folders know nothing but this test's folder."""
    temporary = tmp_path / "machine" / "tmp"
    temporary.mkdir(parents=True)
    environment = isolated(tmp_path / "machine") | {"TMPDIR": str(temporary)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return environment

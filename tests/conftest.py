"""Every test runs in an empty folder of its own, so that no `params.yaml`, `build/`, cache or trust file
of a user affects it."""

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mbd import logs
from tests import quick_mbd
from tests.once import RUN, once

if TYPE_CHECKING:
    from tests.certificate.build import ModelWorkspace

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SLOW = {"fuzz", "studies"}
"""folders of which all tests are slow"""
OF_EXTRAS = {
    *("boto3", "botocore", "docker", "dvc", "fastapi", "jwt", "kfp", "scipy", "sklearn", "threadpoolctl", "torch"),
    *("uvicorn", "httpx2"),
}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """On an install without the extras, leave out the test modules that need one."""
    if find_spec("torch") or not collection_path.name.startswith("test_"):
        return None
    try:
        import_module(".".join(collection_path.relative_to(ROOT).with_suffix("").parts))
    except ModuleNotFoundError as error:
        return error.name in OF_EXTRAS or None
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that are marked as slow each; whole folders of slow ones come when it is their turn."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if item.path.is_relative_to(TESTS) and item.path.relative_to(TESTS).parts[0] in SLOW:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: no collection of garbage, here or in a fork, need visit them."""
    gc.collect()
    gc.freeze()
    get_temp_dir()  # of processes that this one starts: it is there to the end, unlike the folders of tests


@pytest.fixture(scope="session", autouse=True)
def _no_cache_of_an_earlier_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures of a module or session begin before those of a test. Runs use the same paths of stores again, and what
    a cache knows of the log at such a path would be of another run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.chdir(tmp_path_factory.mktemp("fixtures"))  # neither do they write into the repository
        yield


@pytest.fixture(scope="session", autouse=True)
def _programs_of_this_python() -> Iterator[None]:
    """`mbd` and `dvc` are those that are installed beside this Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """What a killed process has written is there without it, and no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like a virtual environment, whose `bin/mbd`, `bin/dvc` and `bin/python` need no start-up."""
    return once(tmp_path_factory, "quick", lambda folder: quick_mbd.start(folder, until=RUN))


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Other handlers are left alone: pytest gives its own to each logger that does not propagate, phase by phase."""
    root, handler = logging.getLogger("mbd"), logs._HANDLER
    configured, filters, propagate, level = handler in root.handlers, handler.filters[:], root.propagate, root.level
    yield
    (root.addHandler if configured else root.removeHandler)(handler)
    handler.filters[:], root.propagate = filters, propagate
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _empty_working_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cwd")
    monkeypatch.chdir(folder)
    logs_of_fixtures = Path(os.environ["XDG_CACHE_HOME"]) / "missing-by-design" / "logs"
    if logs_of_fixtures.exists():  # this machine has made the stores of modules and sessions, and continues their logs
        shutil.copytree(logs_of_fixtures, f"{folder}-cache/missing-by-design/logs")
    monkeypatch.setenv("XDG_CACHE_HOME", f"{folder}-cache")
    monkeypatch.setenv("XDG_CONFIG_HOME", f"{folder}-config")
    monkeypatch.delenv("MBD_TRUST", raising=False)
    temporary = Path(f"{folder}-tmp")  # a purge looks into what killed steps have left in the temporary folder
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


@pytest.fixture
def real_data() -> Path:
    """What the repository does not hold, such as CMU-MOSI (mosi.npz) and the paper: MBD_TEST_DATA names the folder."""
    folder = os.environ.get("MBD_TEST_DATA")
    if folder is None:
        pytest.skip("MBD_TEST_DATA is not set")
    return Path(folder)


@pytest.fixture
def real_mosi(real_data: Path) -> Path:
    return real_data / "mosi.npz"


@pytest.fixture(scope="session")
def model_workspace(tmp_path_factory: pytest.TempPathFactory) -> "ModelWorkspace":
    """Data, a joint model, a lattice, and keys; deletions are made at first use."""
    from tests.certificate.build import make_home  # it trains, and the auditor's install cannot

    return make_home(tmp_path_factory.mktemp("home"))

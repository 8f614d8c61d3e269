"""The pipelines of an installed wheel, far from any clone."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines import NAMES

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("src", "pipelines", "components"):
        shutil.copytree(
            REPOSITORY / name, folder / "source" / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *offline, "--wheel-dir", folder, folder / "source"], check=True)
    (wheel,) = folder.glob("*.whl")
    shutil.rmtree(folder / "source")
    subprocess.run([*pip, "install", *offline, "--target", folder / "site", wheel], check=True)
    return folder / "site"


def test_an_installed_wheel_compiles_its_pipelines_in_any_folder(installed: Path, tmp_path: Path) -> None:
    program = "import mbd.cli; print(mbd.__file__); mbd.cli.main(['pipeline', 'compile', '--out', 'compiled'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(installed) in done.stdout
    for name in NAMES:
        written = (tmp_path / "compiled" / f"{name}.yaml").read_text(encoding="utf-8")
        assert written == (REPOSITORY / "pipelines" / f"{name}.yaml").read_text(encoding="utf-8")
    everything = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert everything == {"compiled", *(f"compiled/{name}.yaml" for name in NAMES)}


def test_only_the_package_is_installed(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} <= {"mbd", "bin"}

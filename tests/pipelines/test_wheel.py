"""Pipelines and manifests of an installed wheel, far from any clone."""

import os
import re
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
    for name in ("src", "pipelines", "components", "deploy", "release", "production"):
        shutil.copytree(
            REPOSITORY / name, folder / "source" / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__")
        )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "dvc.yaml"):
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


def test_an_installed_wheel_renders_a_deployment(installed: Path, tmp_path: Path) -> None:
    for command in (["init", "--kubeflow"], ["deploy", "render"]):
        program = f"import mbd.cli; mbd.cli.main({command!r})"
        environment = {**os.environ, "PYTHONPATH": str(installed)}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
    assert "alert: MbdDeadlineMissed" in done.stdout


def test_an_installed_wheel_begins_a_project_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    program = "import mbd.cli; mbd.cli.main(['init', '--kubeflow'])"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, check=True)
    for name in ("dvc.yaml", "release/dvc.yaml", "production/dvc.yaml"):
        assert "src/mbd" not in (tmp_path / name).read_text() and "mbd " in (tmp_path / name).read_text()


def test_the_hint_for_a_missing_package_names_what_was_installed(installed: Path) -> None:
    program = "from mbd.errors import installation_hint as hint; print(hint('serve'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"pip install 'missing-by-design\[serve\] @ file://.*\.whl'\n", done.stdout)


def test_only_the_package_is_installed(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")} <= {"mbd", "bin"}

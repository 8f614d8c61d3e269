"""Installed packages compared with the requirements."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from mbd.doctor import installation, run_checks
from mbd.doctor.installation import CheckState, DoctorFinding


def test_this_python_is_named() -> None:
    (finding,) = installation.check_python()
    assert finding.state is CheckState.OK
    assert re.match(r"3\.\d+\.\d+ at /", finding.found)


def test_the_bare_install_and_each_extra_are_compared() -> None:
    findings = {finding.name: finding for finding in installation.check_packages()}
    extras = ("train", "privacy", "data", "pipelines", "extract", "mlflow", "serve", "dev")
    assert set(findings) == {"packages", *(f"extra {name}" for name in extras)}
    assert findings["packages"].state is CheckState.OK
    assert f"numpy {version('numpy')}" in findings["packages"].found


def _with(monkeypatch: pytest.MonkeyPatch, requirements: list[str]) -> dict[str, DoctorFinding]:
    monkeypatch.setattr(installation, "requires", lambda _: requirements)
    return {finding.name: finding for finding in installation.check_packages()}


@pytest.mark.parametrize(
    ("requirement", "state"),
    [
        (f"numpy=={version('numpy')}", CheckState.OK),
        (f"numpy<{version('numpy')}", CheckState.WARNING),
        ("torch==2.13.0", CheckState.OK),  # a local version such as 2.13.0+cpu counts as well
    ],
)
def test_installed_versions_are_compared_with_the_requirements(
    monkeypatch: pytest.MonkeyPatch, requirement: str, state: CheckState
) -> None:
    assert _with(monkeypatch, [requirement])["packages"].state is state


def test_missing_and_outdated_packages_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    findings = _with(
        monkeypatch,
        [
            "numpy>=2.0",
            "no-such-package>=1",
            'numpy>=999; extra == "train"',
            'no-such-package[s3]==1.0; extra == "data"',
        ],
    )
    assert findings["packages"].state is CheckState.FAILED
    assert findings["packages"].found == "not installed: no-such-package"
    assert findings["extra train"].state is CheckState.WARNING
    assert f"numpy {version('numpy')} (needed >=999)" in findings["extra train"].found
    assert findings["extra data"].state is CheckState.NOT_CONFIGURED
    assert "[data]'" in (findings["extra data"].to_do or "")


def test_running_from_a_folder_that_is_not_installed_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(installation, "requires", missing)
    (finding,) = installation.check_packages()
    assert finding.state is CheckState.WARNING


def test_git_reports_the_commit_and_the_changed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (before,) = installation.check_git()
    assert before.state is CheckState.WARNING
    assert "no commit" in before.found
    identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.org"]
    for command in (["init", "--quiet"], [*identity, "commit", "--quiet", "--allow-empty", "--message", "first"]):
        subprocess.run(["git", *command], check=True)
    (tmp_path / "new").touch()
    (after,) = installation.check_git()
    assert after.state is CheckState.OK
    assert re.search(r"commit [0-9a-f]{12}, 1 changed files", after.found)


def test_a_machine_without_git_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (finding,) = installation.check_git()
    assert finding.state is CheckState.WARNING
    assert "not installed" in finding.found


@pytest.mark.parametrize(
    ("free", "state"), [(4e11, CheckState.OK), (2e9, CheckState.WARNING), (1e8, CheckState.FAILED)]
)
def test_little_disk_space_is_a_warning_and_almost_none_a_failure(free: float, state: CheckState) -> None:
    assert [finding.state for finding in installation.check_disk(free)] == [state]


def test_the_disk_of_this_folder_is_checked() -> None:
    (finding,) = installation.check_disk()
    assert "GB free" in finding.found


def test_a_gpu_that_is_asked_for_and_missing_is_a_failure() -> None:
    torch = pytest.importorskip("torch")
    (finding,) = installation.check_device("cuda")
    assert finding.state is (CheckState.OK if torch.cuda.is_available() else CheckState.FAILED)
    (finding,) = installation.check_device("auto")
    assert (finding.state, "threads" in finding.found) == (CheckState.OK, True)


def test_without_torch_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (finding,) = installation.check_device("auto")
    assert finding.state is CheckState.NOT_CONFIGURED
    assert "[train]" in (finding.to_do or "")


def test_a_check_that_breaks_is_a_finding_without_secrets() -> None:
    def broken() -> list[DoctorFinding]:
        raise ValueError("cannot read http://user:s3cret@host/x")

    findings = run_checks({"broken": broken, "python": installation.check_python})
    assert [(finding.name, finding.state) for finding in findings] == [
        ("broken", CheckState.FAILED),
        ("python", CheckState.OK),
    ]
    assert findings[0].found == "ValueError: cannot read http://host/x"

"""Remotes of a real DVC repository."""

import os
import sys
import time
from pathlib import Path

import pytest

from mbd.doctor.installation import CheckState, DoctorFinding
from mbd.doctor.services import check_dvc
from tests.doctor.servers import http_server, silent_server
from tests.features.dvc_repository import configure_dvc, isolated


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder that knows nothing of the user's own settings."""
    for key, value in isolated(tmp_path / "user").items():
        monkeypatch.setenv(key, value)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def _remotes() -> dict[str, DoctorFinding]:
    return {finding.name: finding for finding in check_dvc()}


def test_a_folder_without_dvc_is_not_configured() -> None:
    assert [finding.state for finding in check_dvc()] == [CheckState.NOT_CONFIGURED]


def test_a_machine_without_dvc_is_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dvc.repo", None)
    (finding,) = check_dvc()
    assert finding.state is CheckState.NOT_CONFIGURED
    assert "[data]" in (finding.to_do or "")


def test_a_configuration_that_dvc_cannot_read_is_a_failure(here: Path) -> None:
    configure_dvc(here, store="/somewhere\n    no_such_option = 1")
    assert _remotes()["DVC"].state is CheckState.FAILED


def test_a_repository_without_remotes_says_how_to_add_one(here: Path) -> None:
    configure_dvc(here)
    findings = _remotes()
    assert findings["DVC"].state is CheckState.OK
    assert findings["DVC remote"].state is CheckState.NOT_CONFIGURED
    assert "dvc remote add" in (findings["DVC remote"].to_do or "")


def test_folders_are_there_or_not(here: Path, tmp_path: Path) -> None:
    (tmp_path / "stored").mkdir()
    configure_dvc(here, there=str(tmp_path / "stored"), away=str(tmp_path / "away"))
    findings = _remotes()
    assert findings["DVC remote there"].state is CheckState.OK
    assert findings["DVC remote away"].state is CheckState.WARNING


def test_hosts_that_refuse_are_failures_without_passwords(here: Path) -> None:
    configure_dvc(
        here,
        web="http://user:s3cret@127.0.0.1:9/data",
        bucket="s3://data/dvc\n    endpointurl = http://127.0.0.1:9",
    )
    findings = _remotes()
    for name in ("web", "bucket"):
        assert findings[f"DVC remote {name}"].state is CheckState.FAILED
        assert "refused" in findings[f"DVC remote {name}"].found
    assert "s3cret" not in repr(findings)


def test_a_host_that_hangs_is_given_up(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    forbidden = {"HEAD /data/dvc": (403, b""), "GET /data": (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")}
    with silent_server() as silent, http_server(forbidden) as refusing:
        configure_dvc(
            here,
            silent=f"s3://data/dvc\n    endpointurl = {silent}",
            refusing=f"s3://data/dvc\n    endpointurl = {refusing}",
        )
        started = time.monotonic()
        findings = _remotes()
        assert time.monotonic() - started < 15
    assert findings["DVC remote silent"].state is CheckState.FAILED
    assert "firewall" in (findings["DVC remote silent"].to_do or "")
    assert findings["DVC remote refusing"].state is CheckState.FAILED
    assert "credentials" in (findings["DVC remote refusing"].to_do or "")
    assert "s3cret" not in repr(findings)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == "s3cret"

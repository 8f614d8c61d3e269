"""How a run has ended: by what it published, whatever Kubeflow calls its state."""

from dataclasses import replace
from pathlib import Path

import pytest

from mbd.kubeflow import ending
from tests.kubeflow.workspace import ArtifactWorkspace


def reported(
    workspace: ArtifactWorkspace, folder: Path, pipeline: str, run: str, state: str, *, purged: bool = False
) -> str:
    """Return what Prometheus reads after `notify` has run."""
    params = workspace.text("monitoring.mode=textfile", f"monitoring.textfile={folder}")
    ending.notify(params, pipeline, run, ["audio"], state, purged=purged)
    return (folder / f"mbd-pipeline-{pipeline}-sentiment.prom").read_text()


@pytest.mark.parametrize("state", ["COMPLETE", "SUCCEEDED", "RUNNING", "FAILED", "CANCELED"])
def test_a_run_that_published_its_certificate_is_a_success_whatever_kubeflow_calls_it(
    workspace: ArtifactWorkspace, tmp_path: Path, state: str
) -> None:
    metric = 'mbd_step_last_success_timestamp_seconds{model="sentiment",step="pipeline-delete"}'
    assert metric in reported(workspace, tmp_path, "delete", "run-42", state)


def test_a_run_that_published_nothing_is_a_failure_whatever_kubeflow_calls_it(
    workspace: ArtifactWorkspace, tmp_path: Path
) -> None:
    metric = 'mbd_step_last_failure_timestamp_seconds{model="sentiment",reason="failure",step="pipeline-delete"}'
    assert metric in reported(workspace, tmp_path, "delete", "another-run", "COMPLETE")
    assert metric in reported(workspace, tmp_path, "delete", "run-42", "COMPLETE", purged=True)  # none was published


def test_without_a_store_that_can_be_read_the_state_counts(
    workspace: ArtifactWorkspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    untrusted = replace(workspace, settings=(f"certificate.trust={tmp_path}/none.json",))
    assert "last_success" in reported(untrusted, tmp_path, "delete", "run-42", "COMPLETE")
    assert "last_failure" in reported(untrusted, tmp_path, "delete", "run-42", "FAILED")
    assert "the store does not say how the run ended" in capfd.readouterr().err


@pytest.mark.parametrize("params", ["no: parameters", "monitoring: {mode: push, pushgateway: 'http://127.0.0.1:9'}"])
def test_notify_never_fails_the_run(params: str, capfd: pytest.CaptureFixture[str]) -> None:
    ending.notify(params, "delete", "run-42", ["audio"], "SUCCEEDED")
    assert "warning:" in capfd.readouterr().err

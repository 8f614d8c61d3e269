"""`mbd doctor --cluster` where no cluster answers; `tests/cluster` has one."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.deployment import cluster
from mbd.deployment.values import DeployValues
from mbd.doctor import CheckState
from mbd.errors import UsageError
from mbd.params import load_params


def test_without_a_cluster_that_answers_the_hint_says_so_and_nothing_else_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    kubeflow, kubernetes = cluster.check_cluster(DeployValues(), load_params(None))
    assert kubeflow.state is CheckState.NOT_CONFIGURED
    assert (kubernetes.name, kubernetes.state) == ("cluster", CheckState.FAILED)
    assert "kubectl" in (kubernetes.to_do or "")


def test_a_missing_values_file_is_named() -> None:
    done = CliRunner().invoke(group, ["doctor", "--cluster"])
    assert isinstance(done.exception, UsageError)
    assert done.exception.file == Path("values.yaml")

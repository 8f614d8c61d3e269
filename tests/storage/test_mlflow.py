"""What an MLflow registry is asked for, without a server; tests/integration/test_mlflow.py has one."""

import pytest

from mbd.errors import UsageError
from mbd.params import load_params
from mbd.storage.mlflow import MlflowRegistry, StoredArtifact
from tests.refusals import refused


def registry(*settings: str) -> MlflowRegistry:
    return MlflowRegistry(load_params(None, settings).mlflow)


@pytest.mark.parametrize("source", ["models:/name", "models:/name/latest", "models:/a/b/1", "runs:/x/model"])
def test_only_a_version_or_an_alias_can_be_named(source: str) -> None:
    with refused(UsageError, key="--from", value=source):
        registry("mlflow.uri=http://127.0.0.1:9").version(source)


def test_without_a_server_the_parameter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with refused(UsageError, key="mlflow.uri", value=None):
        registry().version("models:/name/1")


def test_credentials_are_neither_in_the_parameters_nor_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(UsageError, match="credentials", key="mlflow.uri"):
        registry("mlflow.uri=http://user:secret@host")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@host")
    assert "secret" not in registry().where


def test_the_address_of_an_artifact() -> None:
    assert (
        StoredArtifact("mlflow-artifacts:/1/run/", "model/weights.pt", 3).name
        == "mlflow-artifacts:/1/run/model/weights.pt"
    )

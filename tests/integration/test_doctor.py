"""`mbd doctor` in front of real servers."""

import json
from pathlib import Path

import pytest

from tests.features.dvc_repository import configure_dvc, isolated
from tests.integration.command import mbd
from tests.integration.servers.prometheus import Prometheus
from tests.integration.servers.rgw import S3

pytestmark = pytest.mark.services


def _doctor(environment: dict[str, str], folder: Path, **settings: str) -> tuple[int, dict[str, dict[str, str]], str]:
    options = [part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]
    done = mbd("doctor", "--json", *options, environment=environment, folder=folder)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    return done.returncode, checks, done.stdout + done.stderr


@pytest.fixture(scope="module", autouse=True)
def bucket(s3: S3) -> None:
    s3.client().create_bucket(Bucket="certificates")


def _remote(s3: S3, bucket: str) -> str:
    return f"s3://{bucket}/dvc\n    endpointurl = {s3.endpoint}"


def test_everything_that_is_right_is_ok(s3: S3, pushgateway: str, tmp_path: Path) -> None:
    configure_dvc(tmp_path, data=_remote(s3, "certificates"))
    code, checks, output = _doctor(
        isolated(tmp_path) | s3.environment,
        tmp_path,
        store__url="s3://certificates/mbd",
        store__endpoint=s3.endpoint,
        monitoring__pushgateway=pushgateway,
    )
    assert code == 0, output
    assert {checks[name]["state"] for name in ("store", "Pushgateway", "DVC", "DVC remote data")} == {"ok"}
    assert s3.secret_key not in output


def test_a_wrong_secret_fails_for_store_and_remote(s3: S3, tmp_path: Path) -> None:
    configure_dvc(tmp_path, data=_remote(s3, "certificates"))
    environment = isolated(tmp_path) | s3.environment | {"AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    code, checks, output = _doctor(
        environment, tmp_path, store__url="s3://certificates/mbd", store__endpoint=s3.endpoint
    )
    assert code == 1
    for name in ("store", "DVC remote data"):
        assert checks[name]["state"] == "failed"
        assert "AWS_SECRET_ACCESS_KEY" in checks[name]["to_do"]
    assert "SignatureDoesNotMatch" in checks["store"]["found"]
    assert "not-the-secret" not in output


def test_a_missing_bucket_fails_for_store_and_remote(s3: S3, tmp_path: Path) -> None:
    configure_dvc(tmp_path, data=_remote(s3, "no-bucket"))
    environment = isolated(tmp_path) | s3.environment
    code, checks, _ = _doctor(environment, tmp_path, store__url="s3://no-bucket", store__endpoint=s3.endpoint)
    assert code == 1
    for name in ("store", "DVC remote data"):
        assert checks[name]["state"] == "failed"
        assert "create the bucket" in checks[name]["to_do"]


def test_prometheus_is_not_taken_for_its_gateway(prometheus: Prometheus, tmp_path: Path) -> None:
    code, checks, _ = _doctor(isolated(tmp_path), tmp_path, monitoring__pushgateway=prometheus.url)
    assert code == 1
    assert "takes no pushes" in checks["Pushgateway"]["found"]

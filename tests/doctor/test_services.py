"""Services on loopback in every state they can be in."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mbd.doctor.installation import CheckState, DoctorFinding
from mbd.doctor.services import check_keys, check_kubeflow, check_pushgateway, check_store
from mbd.params.operations import CertificateSettings, StoreSettings
from mbd.trust.keys import make_keys
from tests.doctor.servers import http_server, silent_server

REFUSAL = b"<Error><Code>SignatureDoesNotMatch</Code><Message>look at the key</Message></Error>"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the credentials of the test, and no cloud to ask for others."""
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")


def _bucket(endpoint: str, seconds: float = 10) -> DoctorFinding:
    (finding,) = check_store(StoreSettings(url="s3://data/prefix", endpoint=endpoint, timeout_seconds=seconds))
    assert "s3cret" not in repr(finding)
    return finding


def test_a_folder_that_can_be_written_to_is_ok_and_stays_as_it_was(tmp_path: Path) -> None:
    (finding,) = check_store(StoreSettings(url=f"file://{tmp_path}/a/b"))
    assert finding.state is CheckState.OK
    assert "not made yet" in finding.found
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["/proc/nothing/store", "{tmp_path}/file/store"])
def test_a_folder_that_cannot_be_written_to_is_a_failure(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (finding,) = check_store(StoreSettings(url=f"file://{place.format(tmp_path=tmp_path)}"))
    assert finding.state is CheckState.FAILED
    assert "store.url" in (finding.to_do or "")


@pytest.mark.parametrize(
    ("answer", "state", "found", "to_do"),
    [
        ((200, b"<ListBucketResult/>"), CheckState.OK, "can be listed with the credentials", ""),
        ((404, b"<Error><Code>NoSuchBucket</Code></Error>"), CheckState.FAILED, "does not exist", "create the bucket"),
        ((403, REFUSAL), CheckState.FAILED, "SignatureDoesNotMatch", "AWS_SECRET"),
        ((500, b""), CheckState.FAILED, "500", "operator of the store"),
    ],
)
def test_a_bucket_in_each_state(answer: tuple[int, bytes], state: CheckState, found: str, to_do: str) -> None:
    with http_server({"GET /data": answer}) as endpoint:
        finding = _bucket(endpoint)
    assert finding.state is state
    assert found in finding.found
    assert to_do in (finding.to_do or "")


def test_a_bucket_needs_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    finding = _bucket("http://127.0.0.1:9")
    assert "Unable to locate credentials" in finding.found
    assert "AWS_ACCESS_KEY_ID" in (finding.to_do or "")


def test_a_bucket_needs_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("s3", "s3_bucket"):
        monkeypatch.delitem(sys.modules, f"mbd.storage.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    finding = _bucket("http://127.0.0.1:9")
    assert finding.state is CheckState.FAILED
    assert "[data]" in (finding.to_do or "")


def test_an_endpoint_that_refuses_or_hangs_is_a_failure() -> None:
    with silent_server() as silent:
        started = time.monotonic()
        for endpoint in ("http://127.0.0.1:9", silent):
            finding = _bucket(endpoint, seconds=0.5)
            assert finding.state is CheckState.FAILED
            assert "store.endpoint" in (finding.to_do or "")
        assert time.monotonic() - started < 20


@pytest.mark.parametrize("check", [check_pushgateway, check_kubeflow])
def test_what_is_not_set_is_not_configured(check: Callable[[str | None], Iterator[DoctorFinding]]) -> None:
    (finding,) = check(None)
    assert finding.state is CheckState.NOT_CONFIGURED
    assert finding.to_do


@pytest.mark.parametrize(
    ("answer", "state", "found"),
    [
        ((200, b"OK"), CheckState.OK, "is ready"),
        ((503, b""), CheckState.FAILED, "503"),
        ((200, b"Prometheus Server is Ready.\n"), CheckState.FAILED, "takes no pushes"),
    ],
)
def test_a_pushgateway_in_each_state(answer: tuple[int, bytes], state: CheckState, found: str) -> None:
    with http_server({"GET /-/ready": answer}) as url:
        (finding,) = check_pushgateway(f"{url}/")
    assert finding.state is state
    assert found in finding.found


@pytest.mark.parametrize(
    ("answer", "state", "found"),
    [
        ((200, b'{"multi_user": true}'), CheckState.OK, "several users"),
        ((200, b"{}"), CheckState.OK, "one user"),
        ((200, b"<html>please log in</html>"), CheckState.WARNING, "a login?"),
        ((401, b""), CheckState.WARNING, "401"),
        ((403, b""), CheckState.WARNING, "403"),
        ((404, b""), CheckState.FAILED, "404"),
    ],
)
def test_a_kubeflow_host_in_each_state(answer: tuple[int, bytes], state: CheckState, found: str) -> None:
    with http_server({"GET /pipeline/apis/v2beta1/healthz": answer}) as url:
        (finding,) = check_kubeflow(f"{url}/pipeline")
    assert finding.state is state
    assert found in finding.found


def test_kubeflow_is_asked_with_the_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server({"GET /apis/v2beta1/healthz": (200, b"{}")}, token="secret") as url:
        assert [finding.state for finding in check_kubeflow(url)] == [CheckState.WARNING]
        monkeypatch.setenv("MBD_KUBEFLOW_TOKEN", "secret")
        assert [finding.state for finding in check_kubeflow(url)] == [CheckState.OK]
        elsewhere = (302, f"{url}/apis/v2beta1/healthz".encode())
        with http_server({"GET /apis/v2beta1/healthz": elsewhere}) as other:  # which may send it to anybody
            assert [finding.state for finding in check_kubeflow(other)] == [CheckState.WARNING]


def test_a_host_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mbd.doctor.services.ANSWER_SECONDS", 0.3)
    with silent_server() as silent:
        (finding,) = check_kubeflow(silent)
    assert finding.state is CheckState.FAILED
    assert "no answer in time" in finding.found


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gateway:9091", "http://127.0.0.1:9"])
def test_an_address_without_a_server_is_a_failure(url: str) -> None:
    (finding,) = check_pushgateway(url)
    assert finding.state is CheckState.FAILED
    assert "monitoring.pushgateway" in (finding.to_do or "")


def test_keys_are_found_and_a_missing_one_is_named(tmp_path: Path) -> None:
    make_keys(tmp_path, "signer")
    settings = CertificateSettings(
        trust=str(tmp_path / "trust.json"),
        signers=(f"file:{tmp_path}/signer.pem",),
        log_signer=f"file:{tmp_path}/log.pem",
    )
    (found,) = check_keys(settings)
    assert (found.state, "2 keys in files" in found.found) == (CheckState.OK, True)
    (tmp_path / "log.pem").unlink()
    (missing,) = check_keys(settings)
    assert missing.state == CheckState.FAILED
    assert "log.pem" in missing.found
    (none,) = check_keys(CertificateSettings(trust=str(tmp_path / "other.json")))
    assert none.state == CheckState.NOT_CONFIGURED

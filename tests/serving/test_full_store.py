"""A store that can be read and not be written: reads are answered, new requests are refused, and nothing is lost."""

import errno
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mbd.params import load_params
from mbd.params.operations import StoreSettings
from mbd.production.request_store import RequestStore
from mbd.production.worker import Worker
from mbd.steps import features, train, verify
from mbd.storage.folder import FolderStore
from mbd.storage.store import NotWritableError
from mbd.trust.keys import TRUST, make_keys
from tests.certificate.authority import key_settings
from tests.monitoring.golden_store import GoldenStore
from tests.production.small import SETTINGS
from tests.refusals import refused
from tests.serving.site import Site, SiteClient
from tests.serving.waiting import wait_until
from tests.storage.s3_server import BUCKET, CREDENTIALS, Refusal, S3Server, s3_server

FULL = Refusal(507, "XMinioStorageFull")
NOT_WRITABLE = "urn:missing-by-design:problem:not-writable"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.getuid() or subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def assert_it_answers_and_takes_nothing(client: SiteClient, entered: list[str]) -> None:
    answer = client.submit("full")
    assert (answer.status_code, answer.json()["type"]) == (507, NOT_WRITABLE)
    assert answer.headers["Retry-After"] == "5"
    assert str(client.site.golden.folder) not in answer.text
    assert client.post(f"/requests/{entered[0]}/cancel", role="operate").status_code == 507
    client.rescan()
    assert client.get(f"/requests/{entered[0]}").json()["state"] == "received"
    assert {one["id"] for one in client.get("/requests").json()["requests"]} == set(entered)
    assert len(client.get("/certificates", None).json()["certificates"]) == 1
    assert client.get("/store/log/checkpoint", None).status_code == 200
    assert client.get("/healthz", None).status_code == 200
    page = client.get("/metrics", None).text
    assert "mbd_store_up 1.0" in page and "mbd_store_writable 0.0" in page
    assert "mbd_store_write_failures_total 2.0" in page


def test_a_full_disk_loses_nothing(disk: Path) -> None:
    site = Site.make(disk)
    site.golden.certificate("surgery")
    with site.client() as client:
        entered = [client.submit(f"k-{number}").json()["id"] for number in range(3)]
        assert "mbd_store_writable 1.0" in client.get("/metrics", None).text
        filler = disk / "filler"
        with pytest.raises(OSError, match="No space left"), filler.open("wb", buffering=0) as stream:
            while True:
                stream.write(bytes(4096))
        assert_it_answers_and_takes_nothing(client, entered)
        filler.unlink()
        assert client.submit("k-0").json()["id"] == entered[0]
        assert "mbd_store_writable 0.0" in client.get("/metrics", None).text, "nothing was written by that"
        assert client.submit("full").status_code == 201
        assert "mbd_store_writable 1.0" in client.get("/metrics", None).text
        assert len(list(site.golden.request_store.all())) == 4


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_store_that_refuses_to_write_is_shown_until_any_server_has_written(
    client: SiteClient, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    entered = [client.submit().json()["id"]]
    with monkeypatch.context() as patched:
        patched.setattr(FolderStore, "_written", written)
        assert_it_answers_and_takes_nothing(client, entered)
    by_another = client.site.golden.request_store
    soon = by_another.submit("sentiment", ["audio"], due_days=1)
    later = client.service.clock().replace(year=2100)
    by_another.change(soon.id, lambda found: found.moved("failed", "w", later))
    client.rescan()
    assert "mbd_store_writable 1.0" in client.get("/metrics", None).text


@dataclass(frozen=True)
class InBucket(GoldenStore):
    """A golden store in a bucket; its keys are in the folder."""

    endpoint: str | None = None

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/mbd"

    @property
    def store_settings(self) -> StoreSettings:
        return StoreSettings(endpoint=self.endpoint, retries=0)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        yield server


def test_a_full_bucket_loses_nothing(bucket: S3Server, tmp_path: Path) -> None:
    golden = replace(InBucket.open(tmp_path), endpoint=bucket.url)
    golden.certificate("surgery")
    with Site.make(golden, f"store.endpoint={bucket.url}", "store.retries=0").client() as client:
        entered = [client.submit(f"k-{number}").json()["id"] for number in range(2)]
        before = dict(bucket.objects)
        bucket.full = FULL
        assert_it_answers_and_takes_nothing(client, entered)
        assert bucket.objects == before
        bucket.full = None
        assert client.submit("full").status_code == 201
        assert "mbd_store_writable 1.0" in client.get("/metrics", None).text
        assert len(list(golden.request_store.all())) == 3


@pytest.mark.slow
def test_a_bucket_that_fills_up_under_a_worker_delays_its_request_and_loses_nothing(
    bucket: S3Server, tmp_path: Path
) -> None:
    make_keys(tmp_path / "keys", "signer")
    url = f"s3://{BUCKET}/mbd"
    own = (f"store.url={url}", f"store.endpoint={bucket.url}", "store.retries=0", "requests.lease_seconds=1")
    params = load_params(None, [*SETTINGS, *key_settings(tmp_path), *own])
    features.run(params, tmp_path / "features")
    train.run(params, tmp_path / "features", tmp_path / "model")
    requests = RequestStore.open(params, url)
    worker = Worker(params, requests, url, tmp_path / "features", tmp_path / "model", "worker")
    entered = requests.submit(params.certificate.model, ["audio"], due_days=1).id
    bucket.full, bucket.fills_at = FULL, "batches/"  # it has the lease, and claimed the request
    with refused(NotWritableError):
        list(worker.run())
    assert requests.get(entered).state == "running"
    bucket.full = None
    wait_until(lambda: [done.state for done, _ in worker.run()] == ["certified"])
    done = requests.get(entered)
    states = Counter(event.state for event in done.history if not event.note)  # notes are of stages
    assert states == {"received": 1, "running": 2, "certified": 1}
    assert verify.run(params, f"{url}/certificates/{done.certificate}", trust=tmp_path / "keys" / TRUST).verified

"""A store that can be read and not be written: reads are answered, new requests are refused, and nothing is lost."""

import errno
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mbd.params.operations import StoreSettings
from mbd.storage.tree import Tree
from tests.monitoring.golden_store import GoldenStore
from tests.serving.site import Site, SiteClient
from tests.storage.s3_server import BUCKET, CREDENTIALS, Refusal, s3_server

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
        patched.setattr(Tree, "written", written)
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


def test_a_full_bucket_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        golden = replace(InBucket.open(tmp_path), endpoint=server.url)
        site = Site.make(golden, f"store.endpoint={server.url}", "store.retries=0")
        golden.certificate("surgery")
        with site.client() as client:
            entered = [client.submit(f"k-{number}").json()["id"] for number in range(2)]
            before = dict(server.objects)
            server.full = Refusal(507, "XMinioStorageFull")
            assert_it_answers_and_takes_nothing(client, entered)
            assert server.objects == before
            server.full = None
            assert client.submit("full").status_code == 201
            assert "mbd_store_writable 1.0" in client.get("/metrics", None).text
            assert len(list(golden.request_store.all())) == 3

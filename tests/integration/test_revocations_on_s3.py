"""Revocations on a real S3 server: remembered whatever is done to objects that no key has signed."""

import uuid
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from mbd.certificate.publish import Publisher
from mbd.history.entries import invalid_entries
from mbd.history.replay import read_history
from mbd.params.operations import StoreSettings
from mbd.storage.store import Store
from mbd.trust.keys import LOG, load_signer
from tests.certificate.campaign import Campaign, fill, remember_parsed_envelopes
from tests.history import revocations
from tests.integration.servers.rgw import S3
from tests.integration.test_publish_on_s3 import opened
from tests.monitoring.golden_store import GoldenStore

pytestmark = pytest.mark.services


_opened_once = cache(opened)


@dataclass(frozen=True)
class BucketStore(GoldenStore):
    """Keys in a folder, and a store in a bucket."""

    @property
    def url(self) -> str:
        return (self.folder / "url").read_text()

    @property
    def store(self) -> Store:
        return _opened_once(self.url, (self.folder / "endpoint").read_text())

    @property
    def private(self) -> Store:
        return _opened_once(f"{self.url.rstrip('/')}/private", (self.folder / "endpoint").read_text())


class Trailing(BucketStore):
    """The same store, with a slash at the end of its URL."""

    @property
    def url(self) -> str:
        return super().url + "/"


@pytest.fixture
def bucket_store(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BucketStore:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"revocations-{uuid.uuid4().hex[:8]}"
    s3.client().create_bucket(Bucket=bucket)
    GoldenStore.open(tmp_path)
    (tmp_path / "url").write_text(f"s3://{bucket}/store")
    (tmp_path / "endpoint").write_text(s3.endpoint)
    return BucketStore(tmp_path)


def test_a_revoked_modality_does_not_come_back_when_unsigned_objects_are_lost(bucket_store: BucketStore) -> None:
    revocations.a_revoked_modality_does_not_come_back(bucket_store)


def test_a_model_that_takes_a_revoked_modality_is_neither_verified_nor_admitted(bucket_store: BucketStore) -> None:
    revocations.a_model_that_takes_it_again_is_neither_verified_nor_admitted(bucket_store)


def test_a_revocation_does_not_disappear_with_one_object(bucket_store: BucketStore) -> None:
    revocations.a_revocation_does_not_disappear_with_one_object(bucket_store)


def test_a_bad_pointer_does_not_stop_the_guard(bucket_store: BucketStore) -> None:
    revocations.a_bad_pointer_does_not_stop_the_guard(bucket_store)


def test_an_old_head_is_not_believed(bucket_store: BucketStore, monkeypatch: pytest.MonkeyPatch) -> None:
    revocations.an_old_head_is_not_believed(bucket_store, monkeypatch)


def test_an_audit_by_a_stranger_moves_no_date(bucket_store: BucketStore) -> None:
    revocations.an_audit_by_a_stranger_moves_no_date(bucket_store)


def test_junk_does_not_look_like_a_log(bucket_store: BucketStore) -> None:
    revocations.junk_does_not_look_like_a_log(bucket_store)


def test_a_planted_claim_brings_nothing_back(bucket_store: BucketStore) -> None:
    revocations.a_planted_claim_brings_nothing_back(bucket_store)


def test_an_older_store_is_refused_under_every_address(bucket_store: BucketStore) -> None:
    elsewhere = opened(f"{bucket_store.url}-elsewhere", (bucket_store.folder / "endpoint").read_text())
    revocations.an_older_store_is_refused_under_every_address(bucket_store, elsewhere)


def test_a_name_that_no_store_would_write_stops_nothing(bucket_store: BucketStore, s3: S3) -> None:
    digest = bucket_store.certificate("exact")
    bucket = bucket_store.url.removeprefix("s3://").partition("/")[0]
    for name in ("\x1b[2J", ".hidden", "x" * 300):
        s3.client().put_object(Bucket=bucket, Key=f"store/certificates/{name}/certificate.json", Body=b"{}")
    history = read_history(bucket_store.store, bucket_store.trust)
    assert [one.digest for one in invalid_entries(history)] == []
    log = load_signer(f"file:{bucket_store.folder}/keys/{LOG}.pem")
    assert Publisher(bucket_store.store, StoreSettings(), log, bucket_store.trust).renew()
    bucket_store.revoke(digest)


def test_nothing_becomes_valid_by_losing_or_exchanging_one_object(
    bucket_store: BucketStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_parsed_envelopes(monkeypatch)
    truth = fill(bucket_store, 3)
    campaign = Campaign((bucket_store, Trailing(bucket_store.folder)), truth)
    campaign.run(tmp_path / "work")
    assert campaign.counts["removed"] >= 50
    assert campaign.counts["replaced by an older one"] >= 4
    assert campaign.counts["log refused, as remembered"] >= 4

"""Revocations on a real S3 server: remembered whatever is done to objects that no key has signed."""

import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from mbd.storage.store import Store
from tests.certificate import revocations
from tests.integration.servers.rgw import S3
from tests.integration.test_publish_on_s3 import opened
from tests.monitoring.golden_store import GoldenStore

pytestmark = pytest.mark.services


@dataclass(frozen=True)
class BucketStore(GoldenStore):
    """Keys in a folder, and a store in a bucket."""

    @property
    def url(self) -> str:
        return (self.folder / "url").read_text()

    @property
    def store(self) -> Store:
        return opened(self.url, (self.folder / "endpoint").read_text())


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

"""What a person with write access to a bucket and no key can make a worker do, on real S3: nothing that counts.

The same bodies run on a folder in `tests/production/test_worker.py`, `tests/history/test_lineage.py`.
"""

import uuid
from pathlib import Path

import pytest

from mbd.params import load_params
from mbd.production.request_store import RequestStore
from mbd.production.worker import Worker
from mbd.steps import features, train
from mbd.trust.keys import make_keys
from tests.certificate.authority import CertificateAuthority, key_settings
from tests.certificate.build import make_home
from tests.history.budgets import Releases, check_a_lost_ledger_is_noticed_and_can_be_restored
from tests.integration.servers.rgw import S3
from tests.production.disclosed import check_only_what_is_disclosed_is_published
from tests.production.planted import (
    carried_out,
    check_a_decision_of_another_batch_is_not_published,
    check_a_marked_request_is_carried_out,
    check_a_planted_base_model_is_ignored,
    check_a_planted_decision_is_not_believed,
    check_bad_objects_block_no_request,
    check_lost_objects_bring_nothing_back,
    check_nothing_is_deleted_while_nothing_can_be_logged,
)
from tests.production.small import SETTINGS

pytestmark = pytest.mark.services


@pytest.fixture
def bucket(s3: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, and its credentials in the environment."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    name = f"attacked-{uuid.uuid4().hex[:8]}"
    s3.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def worker(s3: S3, bucket: str, tmp_path: Path) -> Worker:
    make_keys(tmp_path / "keys", "signer")
    url = f"s3://{bucket}/mbd"
    own = (*key_settings(tmp_path), f"store.url={url}", f"store.endpoint={s3.endpoint}", "store.lock_mode=null")
    params = load_params(None, [*SETTINGS, *own])
    features.run(params, tmp_path / "features")
    train.run(params, tmp_path / "features", tmp_path / "model")
    requests = RequestStore.open(params, url)
    return Worker(params, requests, url, tmp_path / "features", tmp_path / "model", "worker")


def test_a_planted_base_model_is_ignored(worker: Worker, tmp_path: Path) -> None:
    params = load_params(None, [*SETTINGS, "features.seed=7", "training.seed=7"])
    features.run(params, tmp_path / "other-features")
    train.run(params, tmp_path / "other-features", tmp_path / "other")
    check_a_planted_base_model_is_ignored(worker, tmp_path / "other")


def test_lost_objects_bring_nothing_back(worker: Worker) -> None:
    check_lost_objects_bring_nothing_back(worker)


def test_a_decision_of_another_batch_is_not_published(worker: Worker) -> None:
    check_a_decision_of_another_batch_is_not_published(worker, carried_out(worker, "audio"))


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_a_planted_decision_writes_nothing_outside_of_its_folder(worker: Worker, tmp_path: Path, kind: str) -> None:
    check_a_planted_decision_is_not_believed(worker, tmp_path, kind)


def test_bad_objects_block_no_request(worker: Worker) -> None:
    check_bad_objects_block_no_request(worker)


def test_a_request_that_is_only_marked_as_certified_is_carried_out(worker: Worker) -> None:
    check_a_marked_request_is_carried_out(worker)


def test_nothing_is_deleted_while_nothing_can_be_logged(worker: Worker) -> None:
    check_nothing_is_deleted_while_nothing_can_be_logged(worker)


def test_only_what_is_disclosed_is_published(worker: Worker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_only_what_is_disclosed_is_published(worker, tmp_path / "work", tmp_path, caplog)


def test_a_lost_ledger_is_noticed_and_can_be_restored(s3: S3, bucket: str, tmp_path: Path) -> None:
    authority = CertificateAuthority.make(make_home(tmp_path / "home"), tmp_path / "authority")
    settings = (f"store.endpoint={s3.endpoint}",)
    releases = Releases(authority, tmp_path, f"s3://{bucket}/released", settings)
    check_a_lost_ledger_is_noticed_and_can_be_restored(releases, f"s3://{bucket}/elsewhere")

"""Requests carried out: one deletion for all of them, and a valid certificate, or a reason."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from mbd.certificate.compose import compose_revocation
from mbd.certificate.publish import Publisher, announce
from mbd.errors import DataError, UsageError
from mbd.formats.files import CERTIFICATE, WEIGHTS
from mbd.formats.layout import certificate_name
from mbd.formats.request import Lease
from mbd.history.replay import read_history
from mbd.log.reader import LogDamagedError
from mbd.log.tiles import claim_name
from mbd.model.checkpoint import load_model
from mbd.params import load_params
from mbd.production.batches import Batches
from mbd.production.releases import Start, find_base
from mbd.production.request_store import RequestStore
from mbd.production.worker import Worker
from mbd.records import now
from mbd.steps import features, train, verify
from mbd.storage import open_store
from mbd.storage.store import StoreError, update
from mbd.trust.commitments import read_lineage_key
from mbd.trust.keys import load_signer, make_keys
from mbd.trust.trust_file import read_trust
from tests.certificate.authority import key_settings
from tests.log.build import refused_as_shrunk
from tests.production.disclosed import check_only_what_is_disclosed_is_published
from tests.production.planted import (
    DEAD,
    base_of,
    carried_out,
    certificate_of,
    check_a_decision_of_another_batch_is_not_published,
    check_a_marked_request_is_carried_out,
    check_a_planted_base_model_is_ignored,
    check_a_planted_decision_is_not_believed,
    check_bad_objects_block_no_request,
    check_lost_objects_bring_nothing_back,
    check_nothing_is_deleted_while_nothing_can_be_logged,
    plant,
    submitted,
)
from tests.production.small import SETTINGS
from tests.refusals import refused


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    make_keys(tmp_path / "keys", "signer")
    url = f"file://{tmp_path}/store"
    params = load_params(None, [*SETTINGS, *key_settings(tmp_path), f"store.url={url}"])
    features.run(params, tmp_path / "features")
    train.run(params, tmp_path / "features", tmp_path / "model")
    requests = RequestStore.open(params, url)
    return Worker(params, requests, url, tmp_path / "features", tmp_path / "model", "worker")


def test_from_a_request_to_a_certificate_and_what_comes_after_it(worker: Worker, tmp_path: Path) -> None:
    left = Path(tempfile.gettempdir()) / f"mbd-{tmp_path.stat().st_uid}"
    left.mkdir(mode=0o700)
    (left / "plain-of-a-killed-worker").mkdir()
    first = carried_out(worker, "audio")
    assert first.state == "certified"
    place = f"{worker.store_url}/certificates/{first.certificate}"
    assert verify.run(worker.params, place, trust=Path(worker.params.certificate.trust)).verified
    assert not list(left.iterdir())
    notes = [(event.state, event.note) for event in first.history]
    running = [("running", note) for note in ("", "deleted", "evaluated", "attacked")]
    assert notes == [("received", ""), *running, ("certified", "")]

    again = carried_out(worker, "audio")
    assert (again.state, again.certificate) == ("certified", first.certificate)
    assert carried_out(worker, "smell").state == "refused"

    revoke(worker, str(first.certificate))
    renewed = carried_out(worker, "audio")
    assert renewed.state == "certified"
    assert renewed.certificate != first.certificate


def revoke(worker: Worker, certificate: str) -> None:
    settings = worker.params.certificate
    trust = read_trust(Path(settings.trust))
    signer = load_signer(settings.log_signer, trust)
    publisher = Publisher(open_store(worker.store_url), worker.params.store, signer, trust)
    announce(compose_revocation(certificate, "a test", now()), settings, publisher)


@pytest.mark.parametrize("kind", ["absolute", "relative", "nested", "unsigned", "incomplete"])
def test_a_planted_decision_is_reported_and_the_request_is_carried_out(
    worker: Worker, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_a_planted_decision_is_not_believed(worker, tmp_path, kind)
    assert DEAD in caplog.text


def test_bad_objects_block_no_request(worker: Worker) -> None:
    check_bad_objects_block_no_request(worker)


@pytest.fixture
def other_model(worker: Worker, tmp_path: Path) -> Path:
    """A model that the issuer never released: trained by the attacker, or under another name."""
    params = load_params(None, [*SETTINGS, "features.seed=7", "training.seed=7"])
    features.run(params, tmp_path / "other-features")
    train.run(params, tmp_path / "other-features", tmp_path / "other")
    return tmp_path / "other"


def test_a_planted_base_model_is_ignored(worker: Worker, other_model: Path) -> None:
    check_a_planted_base_model_is_ignored(worker, other_model)


def test_lost_objects_bring_nothing_back(worker: Worker) -> None:
    check_lost_objects_bring_nothing_back(worker)


def test_a_decision_of_another_batch_is_not_published(worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    check_a_decision_of_another_batch_is_not_published(worker, carried_out(worker, "audio"))
    assert "a certificate of another batch" in caplog.text


def test_the_given_model_must_be_of_the_lineage_of_the_current_release(worker: Worker, other_model: Path) -> None:
    first = carried_out(worker, "audio")
    request = submitted(worker, "visual")
    with refused(UsageError, key="--model", file=other_model / WEIGHTS):
        list(replace(worker, model=other_model).run())
    assert worker.request_store.get(request.id).state == "received"
    ((done, _),) = replace(worker, model=None).run()
    assert base_of(worker, done) == certificate_of(worker, first).digests[WEIGHTS]


def test_the_first_deletion_needs_a_model(worker: Worker) -> None:
    submitted(worker, "audio")
    with refused(UsageError, key="--model", value="sentiment"):
        list(replace(worker, model=None).run())


def test_another_deletion_record_is_not_believed(worker: Worker) -> None:
    first = carried_out(worker, "audio")
    store, name = worker.request_store.store, f"deletions/{first.certificate}"
    content = store.read(name)
    update(store, name, lambda _: content[:-1] + bytes([content[-1] ^ 1]))
    submitted(worker, "visual")
    with pytest.raises(DataError, match="the deletion record of the certificate is damaged"):
        list(worker.run())
    assert first.certificate
    key = read_lineage_key(worker.params.certificate)
    update(store, name, lambda _: key.seal(str(first.certificate), b"another record"))  # of an earlier version, say
    with pytest.raises(DataError, match="not the deletion record that the certificate commits to"):
        list(worker.run())


def test_a_signed_certificate_of_an_abandoned_batch_is_not_published_later(
    worker: Worker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert worker.model
    request, lease = submitted(worker, "audio"), Lease(worker="slow", until=now(), batch=DEAD)
    assert worker.features
    record, _ = load_model(worker.model)
    (tmp_path / "work").mkdir()
    base = find_base(worker.params, worker.store_url, worker.model)
    start = Start(base, worker.model, record, worker.features, tmp_path / "work")
    batches = Batches(worker.request_store, worker.params.certificate.model)
    decision = worker._certified(batches, start, lease, [request])
    current = carried_out(worker, "visual")
    assert worker.request_store.get(request.id).state == "certified"  # by the same deletion
    again = submitted(worker, "audio")
    plant(worker, again, decision)
    list(worker.run())
    assert "a deletion from another model than the current one" in caplog.text
    assert worker.request_store.get(again.id).certificate == current.certificate
    trust = read_trust(Path(worker.params.certificate.trust))
    assert decision.certificate not in read_history(open_store(worker.store_url), trust).certificates
    store, private = open_store(worker.store_url), worker.request_store.store
    assert decision.certificate and decision.bundle
    envelope = private.read(f"batches/files/{decision.bundle.files[CERTIFICATE]}")
    store.create(certificate_name(decision.certificate), envelope)
    store.create(claim_name(1), bytes.fromhex(decision.certificate))
    submitted(worker, "text")
    with refused(LogDamagedError, match="visual is revoked", file=claim_name(1)):
        list(worker.run())
    assert decision.certificate not in read_history(store, trust).certificates


def test_a_request_that_is_only_marked_as_certified_is_carried_out(worker: Worker) -> None:
    check_a_marked_request_is_carried_out(worker)


def test_nothing_is_deleted_while_nothing_can_be_logged(worker: Worker) -> None:
    check_nothing_is_deleted_while_nothing_can_be_logged(worker)


def test_only_what_is_disclosed_is_published(worker: Worker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    check_only_what_is_disclosed_is_published(worker, tmp_path / "work", tmp_path, caplog)


def test_a_store_that_was_rolled_back_is_refused(worker: Worker, tmp_path: Path) -> None:
    submitted(worker, "audio")
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    assert {done.state for done, _ in worker.run()} == {"certified"}
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "backup", tmp_path / "store")
    with refused_as_shrunk():
        list(worker.run())


def test_a_watching_worker_goes_on_after_failures_and_lets_a_failed_request_rest(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    first = submitted(worker, "audio")
    waited: list[float] = []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        match len(waited):
            case 1:  # the store is away
                store.rename(store.with_name("away"))
                store.symlink_to(store)
            case 2:
                store.unlink()
                store.with_name("away").rename(store)
        return len(waited) < 4

    store = Path(worker.store_url.removeprefix("file://"))
    broken = replace(worker, features=Path(str(worker.features)) / "nothing")
    outcomes = list(broken.watch(wait))
    assert [(request.id, request.state) for request, _ in outcomes] == [(first.id, "failed")]
    assert waited[1] > waited[0] == worker.params.serving.poll_seconds
    assert "carrying out requests failed" in caplog.text
    assert worker.request_store.get(first.id).state == "failed"
    done = list(worker.watch(lambda _: False))
    assert [request.state for request, _ in done] == ["certified"]


def test_a_watching_worker_outlives_a_store_that_is_away_for_months(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the store is away")

    monkeypatch.setattr(Worker, "run", fail)
    waited: list[float] = []
    assert not list(worker.watch(lambda seconds: waited.append(seconds) or len(waited) < 1100))  # type: ignore[func-returns-value]
    assert waited[-1] == waited[20] == 3600

"""Requests carried out: one deletion for all of them, and a certificate that stands, or a reason."""

import tempfile
from pathlib import Path

import pytest

from mbd.certificate.compose import revocation
from mbd.certificate.keys import load_signer, make_keys
from mbd.certificate.publish import Publisher, announce
from mbd.certificate.trust import read_trust
from mbd.formats.request import DeletionRequest
from mbd.params import load_params
from mbd.records import now
from mbd.requests.request_store import RequestStore
from mbd.steps import features, train, verify
from mbd.steps.request import Worker
from mbd.storage import open_store
from tests.certificate.authority import key_settings
from tests.requests.small import SETTINGS


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    make_keys(tmp_path / "keys", "signer")
    url = f"file://{tmp_path}/store"
    params = load_params(None, [*SETTINGS, *key_settings(tmp_path), f"store.url={url}"])
    features.run(params, tmp_path / "features")
    train.run(params, tmp_path / "features", tmp_path / "model")
    return Worker(params, RequestStore(open_store(url)), url, tmp_path / "features", tmp_path / "model", "worker")


def carried_out(worker: Worker, *modalities: str) -> DeletionRequest:
    """Enter a request and carry it out."""
    worker.request_store.submit(worker.params.certificate.model, modalities, due_days=30)
    ((request, _),) = worker.run()
    return request


def test_from_a_request_to_a_certificate_and_what_comes_after_it(worker: Worker, tmp_path: Path) -> None:
    left = tmp_path / "temporary" / f"mbd-{tmp_path.stat().st_uid}"
    left.mkdir(mode=0o700)
    (left / "plain-of-a-killed-worker").mkdir()
    first = carried_out(worker, "audio")
    assert first.state == "certified"
    assert verify.run(worker.params, f"{worker.store_url}/certificates/{first.certificate}").verified
    assert not list(left.iterdir())

    again = carried_out(worker, "audio")
    assert (again.state, again.certificate) == ("certified", first.certificate)
    assert carried_out(worker, "smell").state == "refused"

    revoke(worker, str(first.certificate))
    without = carried_out(worker, "audio")
    assert (without.state, without.certificate) == ("failed", None)
    assert "its certificate is revoked" in without.history[-1].note


def revoke(worker: Worker, certificate: str) -> None:
    settings = worker.params.certificate
    trust = read_trust(Path(settings.trust))
    signer = load_signer(settings.log_signer, trust)
    publisher = Publisher(worker.request_store.store, worker.params.store, signer, trust)
    announce(revocation(certificate, "a test", now()), settings, publisher)

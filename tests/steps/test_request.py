"""Requests carried out: one deletion for all of them, and a valid certificate, or a reason."""

import hashlib
import json
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.certificate.compose import revocation
from mbd.certificate.keys import load_signer, make_keys
from mbd.certificate.publish import Publisher, announce
from mbd.certificate.trust import read_trust
from mbd.errors import DataError
from mbd.formats.request import DeletionRequest, Lease
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


def stored(worker: Worker, content: bytes) -> str:
    """Store a file where workers keep theirs; return its digest."""
    digest = hashlib.sha256(content).hexdigest()
    worker.request_store.store.create(f"batches/files/{digest}", content)
    return digest


def name_outside(tmp_path: Path, kind: str) -> str:
    return str(tmp_path / "outside") if kind == "absolute" else "../../../../outside"


@pytest.mark.parametrize("kind", ["absolute", "relative"])
def test_a_planted_model_state_writes_nothing_outside_the_folder(worker: Worker, tmp_path: Path, kind: str) -> None:
    files = {name_outside(tmp_path, kind): stored(worker, b"attack")}
    state = {"format": "urn:missing-by-design:model-state:v1", "lease": None, "current": {"files": files}}
    worker.request_store.store.create("models/sentiment.json", json.dumps(state).encode())
    worker.request_store.submit("sentiment", ["audio"], due_days=30)
    with pytest.raises(DataError, match="not a valid relative path"):
        list(worker.run())
    assert not list(tmp_path.rglob("outside"))


@pytest.mark.parametrize("kind", ["absolute", "relative", "unsigned", "incomplete"])
def test_a_planted_decision_is_reported_and_the_request_is_carried_out(
    worker: Worker, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    request, batch = worker.request_store.submit("sentiment", ["audio"], due_days=30), "0" * 16
    over = Lease(worker="dead", until=now() - timedelta(hours=1), batch=batch)
    worker.request_store.claim(request, over)
    name = "certificate.json" if kind == "unsigned" else name_outside(tmp_path, kind)
    files = None if kind == "incomplete" else {"files": {name: stored(worker, b"{}")}}
    decision = {
        "format": "urn:missing-by-design:batch:v1",
        "batch": batch,
        "outcome": "certified",
        "requests": [request.id],
        "certificate": "c" * 64,
        "bundle": files,
        "model": files,
    }
    worker.request_store.store.create(f"batches/{batch}.json", json.dumps(decision).encode())
    ((done, _),) = worker.run()
    assert (done.state, done.id) == ("certified", request.id)
    assert done.certificate != "c" * 64
    assert batch in caplog.text
    assert not list(tmp_path.rglob("outside"))

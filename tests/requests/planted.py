"""Attacks on a worker by a person who can write any object into the store, and holds no key; in any store."""

import hashlib
import json
from datetime import timedelta
from pathlib import Path

from mbd.certificate.lineage import read_lineage_key
from mbd.certificate.replay import read_history
from mbd.certificate.trust import read_trust
from mbd.files import sha256_file
from mbd.formats.deletion import DeletionRecord
from mbd.formats.request import Decision, DeletionRequest, Lease
from mbd.formats.statement import DeletionStatement
from mbd.model.checkpoint import RECORD, WEIGHTS
from mbd.records import now
from mbd.steps.request import Worker
from mbd.storage import open_store
from mbd.storage.store import Store

DEAD = "0" * 16
"""batch of a worker that was killed"""


def submitted(worker: Worker, *modalities: str) -> DeletionRequest:
    return worker.request_store.submit(worker.params.certificate.model, modalities, due_days=30)


def carried_out(worker: Worker, *modalities: str) -> DeletionRequest:
    """Submit a request and carry it out."""
    request = submitted(worker, *modalities)
    return {done.id: done for done, _ in worker.run()}[request.id]


def stored(private: Store, content: bytes) -> str:
    """Store a file where workers keep theirs; return its digest."""
    digest = hashlib.sha256(content).hexdigest()
    private.create(f"batches/files/{digest}", content)
    return digest


def certificate_of(worker: Worker, request: DeletionRequest) -> DeletionStatement:
    """Return the certificate that answers a request, by the log."""
    assert request.certificate, request.history[-1].note
    trust = read_trust(Path(worker.params.certificate.trust))
    return read_history(open_store(worker.store_url, worker.params.store), trust).certificate(request.certificate)


def base_of(worker: Worker, request: DeletionRequest) -> str:
    """Return the SHA-256 of the weights that a request was carried out on."""
    assert request.certificate
    sealed = worker.request_store.store.read(f"deletions/{request.certificate}")
    content = read_lineage_key(worker.params.certificate).unseal(request.certificate, sealed)
    return DeletionRecord.from_bytes(content, "deletion record").before


def check_a_planted_base_model_is_ignored(worker: Worker, planted: Path) -> None:
    """Name another model as the current one, as earlier versions did; the deletion starts from `--model`."""
    assert worker.model
    files = {name: stored(worker.request_store.store, (planted / name).read_bytes()) for name in (WEIGHTS, RECORD)}
    state = {"format": "urn:missing-by-design:model-state:v1", "lease": None, "current": {"files": files}}
    worker.request_store.store.create(f"models/{worker.params.certificate.model}.json", json.dumps(state).encode())
    done = carried_out(worker, "audio")
    assert done.state == "certified"
    assert base_of(worker, done) == sha256_file(worker.model / WEIGHTS)


def check_lost_objects_bring_nothing_back(worker: Worker) -> None:
    """Remove every object beside the log and the certificates: the next deletion starts from the current release."""
    first = carried_out(worker, "audio")
    released = certificate_of(worker, first).digests[WEIGHTS]
    store, private = open_store(worker.store_url, worker.params.store), worker.request_store.store
    store.delete([one for prefix in ("latest/", "about/") for one in store.list(prefix)])
    private.delete([one for prefix in ("models/", "batches/", "requests/") for one in private.list(prefix)])
    second = carried_out(worker, "visual")
    assert base_of(worker, second) == released
    statement = certificate_of(worker, second)
    assert set(statement.predicate.deleted.revoked) == {"audio", "visual"}
    assert list(statement.predicate.structure.inputs) == ["text"]


def check_a_decision_of_another_batch_is_not_published(worker: Worker, first: DeletionRequest) -> None:
    """Plant the decision of a batch that is done as that of a new request: it is carried out all the same."""
    private = worker.request_store.store
    (batch,) = (one.name for one in private.list("batches/") if one.name.count("/") == 1)
    decision = Decision.from_bytes(private.read(batch), "decision")
    request = submitted(worker, "visual")
    plant(worker, request, decision)
    done = {one.id: one for one, _ in worker.run()}[request.id]
    assert done.state == "certified"
    assert done.certificate != first.certificate
    assert "visual" in certificate_of(worker, done).predicate.deleted.modalities


def plant(worker: Worker, request: DeletionRequest, decision: Decision) -> None:
    """Make a request look as if a killed worker had decided its batch in this way."""
    over = Lease(worker="dead", until=now() - timedelta(hours=1), batch=DEAD)
    worker.request_store.claim(request, over)
    planted = decision.model_copy(update={"batch": DEAD, "requests": (request.id,)})
    worker.request_store.store.create(f"batches/{DEAD}.json", planted.to_bytes())

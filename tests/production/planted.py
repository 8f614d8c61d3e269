"""Attacks on a worker by a person who can write any object into the store, and holds no key; in any store."""

import hashlib
import json
from datetime import timedelta
from pathlib import Path

from mbd.files import sha256_file
from mbd.formats.deletion import DeletionRecord
from mbd.formats.files import MODEL, WEIGHTS
from mbd.formats.request import Decision, DeletionRequest, Lease
from mbd.formats.statement import DeletionStatement
from mbd.history.replay import read_history
from mbd.log.reader import LogDamagedError
from mbd.log.tiles import Tile, claim_name
from mbd.production.worker import Worker
from mbd.records import now
from mbd.storage import open_store
from mbd.storage.store import LARGEST_IN_MEMORY, Store, StoredObject
from mbd.trust.commitments import read_lineage_key
from mbd.trust.trust_file import read_trust
from tests.log.build import refused_claim
from tests.refusals import refused

DEAD = "0" * 16
"""batch of a worker that was killed"""
_OVER = Lease(worker="dead", until=now() - timedelta(hours=1), batch=DEAD)


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
    files = {name: stored(worker.request_store.store, (planted / name).read_bytes()) for name in (WEIGHTS, MODEL)}
    state = {"format": "urn:missing-by-design:model-state:v1", "lease": None, "current": {"files": files}}
    worker.request_store.store.create(f"models/{worker.params.certificate.model}.json", json.dumps(state).encode())
    done = carried_out(worker, "audio")
    assert done.state == "certified"
    assert base_of(worker, done) == sha256_file(worker.model / WEIGHTS)


def check_a_planted_decision_is_not_believed(worker: Worker, outside: Path, kind: str) -> None:
    """Plant a decision whose files have names outside of the worker's folder, or that no signature is about."""
    names = {
        "absolute": (str(outside / "outside"),),
        "relative": ("../../../../outside",),
        "nested": ("model.json", "model.json/more"),
        "unsigned": ("certificate.json",),
    }
    request = submitted(worker, "audio")
    worker.request_store.claim(request, _OVER)
    file = stored(worker.request_store.store, b"{}")
    files = None if kind == "incomplete" else {"files": dict.fromkeys(names[kind], file)}
    decision = {
        "format": "urn:missing-by-design:batch:v1",
        "batch": DEAD,
        "outcome": "certified",
        "requests": [request.id],
        "certificate": "c" * 64,
        "bundle": files,
        "model": files,
    }
    worker.request_store.store.create(f"batches/{DEAD}.json", json.dumps(decision).encode())
    ((done, _),) = worker.run()
    assert (done.state, done.id) == ("certified", request.id)
    assert done.certificate != "c" * 64
    assert not list(outside.rglob("outside"))


def check_bad_objects_block_no_request(worker: Worker) -> None:
    """Plant objects that are none, and one that no memory would hold, wherever workers look."""
    store, private = open_store(worker.store_url, worker.params.store), worker.request_store.store
    model, large = worker.params.certificate.model, bytes(LARGEST_IN_MEMORY + 1)
    for name in ("requests/junk", f"requests/{DEAD}.json", f"models/{model}.json", "batches/junk", "tombstones/junk"):
        private.create(name, b"junk")
    private.create("requests/large.json", large)
    honest = submitted(worker, "audio").model_dump(mode="json")
    for number, wrong in enumerate(
        ({"received": "2026-01-01T00:00:00.5Z"}, {"due": "2026-01-01T00:00:00+01:00"}, {"due": "1999-01-01T00:00:00Z"})
    ):
        planted = {**honest, "id": f"{number + 1:016x}", **wrong}
        private.create(f"requests/{planted['id']}.json", json.dumps(planted).encode())
    store.create(f"latest/{model}/audio", b"junk")
    store.create(f"certificates/{'c' * 64}/certificate.json", large)
    everything = submitted(worker, "audio", "text", "visual").id
    states = {done.id: done.state for done, _ in worker.run()}
    assert states == {honest["id"]: "certified", everything: "refused"}


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
    worker.request_store.claim(request, _OVER)
    planted = decision.model_copy(update={"batch": DEAD, "requests": (request.id,)})
    worker.request_store.store.create(f"batches/{DEAD}.json", planted.to_bytes())


def check_a_marked_request_is_carried_out(worker: Worker) -> None:
    """Mark requests as certified, by no certificate and by one that is about something else: both are carried out."""
    first = carried_out(worker, "audio")
    request = submitted(worker, "visual")
    for certificate in (first.certificate, "c" * 64):
        worker.request_store.change(
            request.id,
            lambda one, certificate=certificate: one.moved("certified", "x", now(), certificate=certificate),  # type: ignore[misc]
        )
        done = {one.id: one for one, _ in worker.run()}[request.id]
        assert done.state == "certified"
        assert "visual" in certificate_of(worker, done).predicate.deleted.revoked
    assert worker.request_store.get(first.id) == first


def check_nothing_is_deleted_while_nothing_can_be_logged(worker: Worker) -> None:
    """Plant a claim, or a tile of the next entry: no deletion is made again and again, and none is lost."""
    store, request = open_store(worker.store_url, worker.params.store), submitted(worker, "audio")
    store.create(claim_name(0), b"c" * 32)
    with refused_claim(0):
        list(worker.run())
    assert not list(worker.request_store.store.list("batches/"))
    store.delete([StoredObject(claim_name(0), 0, "")])
    store.create(Tile(0, 0, 1).name, b"t" * 32)
    for _ in range(2):
        with refused(LogDamagedError, file=Tile(0, 0, 1).name):
            list(worker.run())
    (decided,) = (one.name for one in worker.request_store.store.list("batches/") if one.name.count("/") == 1)
    store.delete([StoredObject(Tile(0, 0, 1).name, 0, "")])
    list(worker.run())
    decision = Decision.from_bytes(worker.request_store.store.read(decided), "decision")
    done = worker.request_store.get(request.id)
    assert (done.state, done.certificate) == ("certified", decision.certificate)

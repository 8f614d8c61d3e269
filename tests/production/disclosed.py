"""Everything that is published after a request was carried out and its old weights were purged; in any store."""

import logging
from pathlib import Path

import pytest

from mbd.files import sha256_file
from mbd.formats.files import WEIGHTS
from mbd.formats.layout import RECEIPT, Receipt
from mbd.monitoring.store_monitor import StoreMonitor
from mbd.monitoring.store_scanner import StoreScanner
from mbd.production.worker import Worker
from mbd.steps import publish, purge
from mbd.storage import open_private, open_store
from mbd.verifier.bundle import Bundle

REQUESTER, REASON = "case-of-Ms-Doe", "no longer a customer"


def published_bytes(worker: Worker, folder: Path) -> dict[str, bytes]:
    """Carry out a request, publish again with a receipt, purge, and return every byte that others may read, by place.

    Args:
        worker: it has nothing done yet.
        folder: for outputs.
    """
    params, url, store = worker.params, worker.store_url, open_store(worker.store_url, worker.params.store)
    model = params.certificate.model
    worker.request_store.submit(model, ["audio"], due_days=30, requester=REQUESTER, reason=REASON)
    ((done, _),) = worker.run()
    assert done.certificate, done.history[-1].note
    receipt = _receipt(worker, done.certificate, folder)
    purge.run(params, purge.plan(params, receipt, url, root=folder), url)
    found = {f"store {one.name}": store.read(one.name) for one in store.list() if not one.name.startswith("private/")}
    found |= {f"name of {name}": name.encode() for name in found}
    monitor = StoreMonitor(StoreScanner(store, open_private(url, params.store), Path(params.certificate.trust)), 60)
    monitor.scan()
    return found | {"metrics": monitor.text().encode(), "receipt": receipt.read_bytes()}


def _receipt(worker: Worker, certificate: str, folder: Path) -> Path:
    """Fetch the bundle of a certificate and publish it again, which changes nothing, for the receipt."""
    store = open_store(worker.store_url, worker.params.store)
    bundle, model = folder / "bundle", folder / "released"
    for place in (bundle, model):
        place.mkdir(parents=True)
    (bundle / "certificate.json").write_bytes(store.read(f"certificates/{certificate}/certificate.json"))
    statement = Bundle(bundle).statement
    for name, digest in statement.digests.items():
        store.fetch(f"objects/sha256/{digest}", (model if name == WEIGHTS else bundle) / name, sha256=digest)
    (model / "model.json").write_bytes((bundle / "model.json").read_bytes())
    publish.run(worker.params, bundle, model, worker.store_url, folder / "published")
    assert Receipt.read(folder / "published" / RECEIPT, "receipt", "").certificate == certificate
    return folder / "published" / RECEIPT


def check_only_what_is_disclosed_is_published(
    worker: Worker, folder: Path, machine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Look for digests of old weights, paths of this machine (`machine`) and requesters in all published bytes."""
    assert worker.model
    old = sha256_file(worker.model / WEIGHTS)
    with caplog.at_level(logging.DEBUG):
        found = published_bytes(worker, folder)
    found["log"] = caplog.text.encode()
    for what in (old, str(machine), REQUESTER, REASON):
        places = [place for place, content in found.items() if what.encode() in content]
        assert places == [], f"{what} is in {places}"
    private = {one.name.split("/")[0] for one in worker.request_store.store.list()}
    assert private >= {"requests", "batches", "deletions", "tombstones"}

"""What all routes share: the store, the requests, what the last scan found, and who is notified."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mbd.background import Background
from mbd.formats.files import MODEL
from mbd.formats.model import ModelRecord
from mbd.formats.request import DeletionRequest
from mbd.history.entries import entry_of
from mbd.history.facts import CertificateFacts
from mbd.history.history import History
from mbd.history.state import Status, status_in
from mbd.log.reader import Log
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.monitoring.store_monitor import StoreMonitor
from mbd.monitoring.store_scanner import StoreScanner, StoreSnapshot
from mbd.params import Params
from mbd.production.request_store import RequestStore
from mbd.records import now
from mbd.serving.problems import ApiError
from mbd.serving.request_index import RequestIndex
from mbd.serving.webhooks import Webhook, read_secret
from mbd.storage.store import Store, StoreError
from mbd.trust.commitments import LineageKey
from mbd.trust.trust_file import read_trust

if TYPE_CHECKING:
    from mbd.report.page.content import Page
    from mbd.serving.server import WorkerProcess


_STATES_SECONDS = 60
"""a state can also change with time alone: an audit becomes overdue"""


@dataclass
class Service:
    """One server on one store."""

    params: Params
    store: Store
    requests: RequestStore
    monitor: StoreMonitor
    trust_file: Path
    index: RequestIndex = field(default_factory=RequestIndex)
    webhooks: tuple[Webhook, ...] = ()
    base: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """modalities of models that were trained and not released yet, by name"""
    url: str = ""
    """address by which clients reach this server"""
    worker: "WorkerProcess | None" = None
    """the worker that runs beside this server"""
    persons: LineageKey | None = None
    """encrypts the ids of persons, of whom pseudonyms and ciphertext are kept; None: no persons' requests are taken"""
    clock: Callable[[], datetime] = now

    def __post_init__(self) -> None:
        self.stopping = threading.Event()
        """set when the server begins to stop: streams end"""
        self.weights: dict[str, bool] = {}
        """of objects that were asked for: whether they hold weights"""
        self._writes = Samples()
        self._failed: datetime | None = None
        """when the store last did not take a change, unless it has changed since"""
        self._rows: tuple[tuple[CertificateFacts, Status], ...] = ()
        self._rows_as_of: tuple[object, ...] = ()
        self.monitor.listeners.append(self._scanned)

    @classmethod
    def open(cls, params: Params, store: Store, trust: Path, base: Path | None = None) -> "Service":
        """Return the server's side of a store; nothing is started yet.

        Args:
            params: All parameters.
            store: The store.
            trust: The trust file.
            base: Folder of the model that the first deletion of `certificate.model` starts from.

        """
        requests, index, serving = RequestStore.open(params, store.url), RequestIndex(), params.serving
        scanner = StoreScanner(store, requests.store, trust, params.certificate.checkpoint_age, requests.key)
        monitor = StoreMonitor(scanner, serving.poll_seconds, params.registration.retrain_days)
        webhooks = tuple(
            Webhook(url, read_secret(), requests.store, index, serving.webhook_seconds) for url in serving.webhooks
        )
        record = ModelRecord.read(base / MODEL, "model record") if base else None
        trained = {params.certificate.model: tuple(record.modalities)} if record else {}
        return cls(params, store, requests, monitor, trust, index, webhooks, trained)

    def start(self) -> None:
        """Start the scans, the webhooks and the worker."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Stop what :meth:`start` started."""
        self.stopping.set()
        for part in reversed(self._parts):
            part.stop()

    @property
    def _parts(self) -> tuple[Background, ...]:
        return (self.monitor, *self.webhooks, *((self.worker,) if self.worker else ()))

    @property
    def snapshot(self) -> StoreSnapshot:
        """What the last scan found; an ApiError before the first one."""
        if self.monitor.snapshot is None:
            raise ApiError(503, "the store has not been read yet", hint="try again soon", headers={"Retry-After": "1"})
        return self.monitor.snapshot

    @property
    def history(self) -> History:
        """What the log says, as of the last scan."""
        return self.snapshot.history

    @property
    def certificates(self) -> tuple[tuple[CertificateFacts, Status], ...]:
        """Every certificate and its state, the last logged first, as of the last scan."""
        _ = self.snapshot
        return self._rows

    def certificate(self, digest: str) -> tuple[CertificateFacts, Status]:
        """Return one certificate and its state; an ApiError if the log has none that can be read."""
        snapshot = self.snapshot
        facts = snapshot.history.certificates.get(digest)
        if facts is None:
            for finding in snapshot.history.findings:
                if finding.digest == digest:
                    problem = "what the store holds of this certificate does not verify"
                    raise ApiError(409, problem, verdict=finding.verdict)
            raise ApiError(404, "the log has no such certificate", hint="GET /certificates lists them")
        return facts, self._status(snapshot, facts, self.clock())

    def page(self, digest: str) -> "Page":
        """Return the page of a certificate."""
        from mbd.steps.report import store_page  # noqa: PLC0415 -- only where a page is asked for

        history, age = self.history, self.params.certificate.checkpoint_age
        at = self.clock()
        entry = entry_of(history, self.certificate(digest)[0], at, age)
        log = Log(self.store, read_trust(self.trust_file), history.head)
        return store_page(log, f"{self.url}/store", entry, at, back="/")

    def models(self) -> list[str]:
        """Return the names of all models that are known."""
        return sorted({*self.history.models, *self.base})

    def modalities(self, model: str) -> tuple[str, ...] | None:
        """Return the modalities of a model, those revoked too; None if nothing is known of them."""
        known = self.history.model(model)
        taken = {modality for release in known.releases for modality in release.inputs}
        taken.update(*(certificate.revoked for certificate in known.certificates), self.base.get(model, ()))
        return tuple(sorted(taken)) or None

    def check_request(self, model: str, modalities: list[str]) -> None:
        """Check that a request is for a model and modalities that there are.

        The model that this server is configured for is accepted before anything is known of it.
        """
        known = self.modalities(model)
        if known is None:
            if model != self.params.certificate.model:
                models = sorted({*self.models(), self.params.certificate.model})
                raise ApiError(422, "there is no model of this name", key="model", known=models)
            return
        if unknown := [modality for modality in modalities if modality not in known]:
            raise ApiError(
                422,
                f"the model has no such modality ({len(unknown)} of {len(modalities)})",
                key="modalities",
                known=list(known),
            )

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Within: a request is changed in the store. If the store does not take that, metrics show it."""
        try:
            yield
        except StoreError:
            self._failed = self.clock()
            self._writes.count(metrics.STORE_WRITE_FAILURES)
            self._writes.set(metrics.STORE_WRITABLE, 0)
            raise

    def written(self, request: DeletionRequest) -> None:
        """Take over a request that was written here, and notify."""
        if self.index.written(request):  # not if an earlier request was found by its idempotency key
            self._store_takes_changes()
        self.monitor.wake()

    def _store_takes_changes(self) -> None:
        self._failed = None
        self._writes.set(metrics.STORE_WRITABLE, 1)
        self._writes.count(metrics.STORE_WRITE_FAILURES, 0)

    def metrics(self) -> str:
        """Return the metrics of the store, and of webhooks and worker if there are any."""
        samples = Samples()
        if self.webhooks:
            samples.set(metrics.WEBHOOK_PENDING, sum(len(webhook.pending()) for webhook in self.webhooks))
            samples.count(metrics.WEBHOOK_FAILURES, sum(webhook.failures for webhook in self.webhooks))
        if self.worker:
            samples.set(metrics.WORKER_UP, self.worker.pid is not None)
        return self.monitor.text() + self._writes.text() + samples.text()

    def _list_certificates(self, snapshot: StoreSnapshot) -> None:
        """Make the list again if the log has changed, and now and then: here rather than while a client waits."""
        at, history = self.clock(), snapshot.history
        as_of = history.head, history.findings, snapshot.log_problem, int(at.timestamp()) // _STATES_SECONDS
        if as_of != self._rows_as_of:
            rows = [(each, self._status(snapshot, each, at)) for each in history.certificates.values()]
            self._rows, self._rows_as_of = tuple(reversed(rows)), as_of

    @staticmethod
    def _status(snapshot: StoreSnapshot, certificate: CertificateFacts, at: datetime) -> Status:
        return status_in(snapshot.history, certificate, at, snapshot.log_problem, max_age=snapshot.max_age)

    def _scanned(self, snapshot: StoreSnapshot) -> None:
        self.index.scanned(snapshot, self.monitor.began)
        # Another server or a worker may have written since; times are in whole seconds.
        if self._failed and self.index.events(self._failed.timestamp() + 1):
            self._store_takes_changes()
        self._list_certificates(snapshot)
        for webhook in self.webhooks:
            webhook.wake()

"""One batch of requests is one deletion, and it is decided once: carried out, or abandoned.

    models/NAME.json      who works on the model now (a lease), and the model that the next deletion starts from
    batches/BATCH.json    the decision, created once: what was certified, or that the batch was abandoned

A worker takes the model's lease by compare-and-swap, claims the requests, does the work, and *decides* the batch by
creating its object. Whoever takes the lease when it is over first abandons the batches that still run, by creating the
same objects. The store lets one of them: if the worker was faster, its certificate stands and only has to be finished;
if not, the worker's own attempt to decide fails, and nothing of its work counts. So a request is certified once,
whoever is killed when. Only who holds the lease moves the model on, and a request is ended by its own batch. A worker
renews its lease while it works, so a lease that is over is that of a worker that died or lost the store.
"""

import secrets
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from mbd.formats.request import DeletionRequest, Lease
from mbd.records import Record
from mbd.requests.request_store import RequestStore
from mbd.storage.store import ConflictError, NotThereError, OtherContentError


class Files(Record):
    """A model folder in the store: the SHA-256 of each file by name."""

    files: dict[str, str]


class ModelState(Record):
    """What `models/NAME.json` says."""

    format: Literal["urn:missing-by-design:model-state:v1"] = "urn:missing-by-design:model-state:v1"
    lease: Lease | None = None
    current: Files | None = None
    """the model that was certified last; null: none yet"""


class Decision(Record):
    """What became of a batch."""

    format: Literal["urn:missing-by-design:batch:v1"] = "urn:missing-by-design:batch:v1"
    batch: str
    outcome: Literal["certified", "abandoned"]
    requests: tuple[str, ...] = ()
    certificate: str | None = None
    bundle: Files | None = None
    model: Files | None = None


@dataclass(frozen=True)
class Batches:
    """The batches of one model in one store."""

    request_store: RequestStore
    model: str

    def take(self, worker: str, lease_seconds: int) -> Lease | None:
        """Take the model's lease, or None while somebody else has it."""
        state, tag = self._state()
        at = self.request_store.clock()
        if state.lease and state.lease.until > at:
            return None
        lease = Lease(worker=worker, until=at + timedelta(seconds=lease_seconds), batch=secrets.token_hex(8))
        return lease if self._move(state.model_copy(update={"lease": lease}), tag) else None

    def left_behind(self) -> list[Decision]:
        """Abandon every batch that was begun and not decided; return those that were decided and not finished.

        Only who holds the model's lease may call this, before claiming anything.
        """
        running = [
            r for r in self.request_store.open_requests() if r.model == self.model and r.state == "running" and r.lease
        ]
        batches = dict.fromkeys(request.lease.batch for request in running if request.lease)
        decided = [self.decide(Decision(batch=batch, outcome="abandoned")) for batch in batches]
        return [decision for decision in decided if decision.outcome == "certified"]

    def claim_all(self, lease: Lease, but: Container[str] = ()) -> list[DeletionRequest]:
        """Claim every request of the model that is owed, nearest deadline first, `but` those with these ids."""
        open_requests = [
            request
            for request in self.request_store.open_requests()
            if request.model == self.model and request.id not in but
        ]
        return [taken for request in open_requests if (taken := self.request_store.claim(request, lease))]

    def decide(self, decision: Decision) -> Decision:
        """Decide a batch, or return how it was decided."""
        name = f"batches/{decision.batch}.json"
        try:
            self.request_store.store.create(name, decision.to_bytes())
        except OtherContentError:
            return Decision.model_validate_json(self.request_store.store.read(name))
        return decision

    def current(self) -> Files | None:
        """Return the model that the next deletion starts from; None: the one that was trained."""
        return self._state()[0].current

    def renew(self, lease: Lease, lease_seconds: int) -> bool:
        """Prolong the lease from now on; False if it is no longer ours."""
        until = self.request_store.clock() + timedelta(seconds=lease_seconds)
        return self._while_ours(lease, lambda: {"lease": lease.model_copy(update={"until": until})})

    def release(self, lease: Lease) -> None:
        """Give the lease back, if it is still ours."""
        self._while_ours(lease, lambda: {"lease": None})

    def set_current(self, current: Files, lease: Lease) -> bool:
        """Let the next deletion start from this model; False if the lease is no longer ours."""
        return self._while_ours(lease, lambda: {"current": current})

    def _while_ours(self, lease: Lease, change: Callable[[], dict[str, object]]) -> bool:
        """Change the model's state as long as the lease is ours, again if it was renewed in between."""
        while True:
            state, tag = self._state()
            if state.lease is None or state.lease.batch != lease.batch:
                return False
            if self._move(state.model_copy(update=change()), tag):
                return True

    def end(
        self,
        batch: str,
        requests: Iterable[str],
        state: Literal["certified", "refused", "failed"],
        *,
        certificate: str | None = None,
        note: str = "",
    ) -> None:
        """Move requests of a batch to their end, those that are still part of it."""

        def ended(request: DeletionRequest) -> DeletionRequest:
            if request.state != "running" or request.lease is None or request.lease.batch != batch:
                return request
            return request.moved(state, request.lease.worker, self.request_store.clock(), note, certificate=certificate)

        for identifier in requests:
            self.request_store.change(identifier, ended)

    def _state(self) -> tuple[ModelState, str | None]:
        try:
            data, tag = self.request_store.store.read_tagged(self._name)
        except NotThereError:
            return ModelState(), None
        return ModelState.model_validate_json(data), tag

    def _move(self, state: ModelState, tag: str | None) -> bool:
        try:
            self.request_store.store.replace(self._name, state.to_bytes(), expected=tag)
        except ConflictError:
            return False
        return True

    @property
    def _name(self) -> str:
        return f"models/{self.model}.json"

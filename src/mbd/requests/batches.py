"""A batch of requests is carried out by one deletion, and decided once: certified or abandoned.

    models/NAME.json      the lease of the worker on this model, and the model that the next deletion starts from
    batches/BATCH.json    the decision, created once: what was certified, or that the batch was abandoned

A worker takes the lease of the model by compare-and-swap, claims the requests, does the work, and *decides* the batch
by creating its object. A worker that takes over an expired lease first abandons the batches that are still running, by
creating the same objects. The store lets one of them succeed. If the old worker was faster, its certificate is valid
and only has to be published; if not, its own attempt to decide fails, and its work is discarded. So a request is
certified once, whichever worker is killed. Only the holder of the lease changes the current model, and a request is
ended only by its own batch. A worker renews its lease while it works, so an expired lease means that the worker died or
lost the store.

An object that is not a valid decision counts as abandoned: it is reported, and cannot block the requests of the model.
"""

import logging
import secrets
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from mbd.errors import DataError
from mbd.formats.request import Decision, DeletionRequest, Files, Lease, ModelState
from mbd.requests.request_store import RequestStore
from mbd.storage.store import NotThereError, OtherContentError, update

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batches:
    """The batches of one model in one store."""

    request_store: RequestStore
    model: str

    def take(self, worker: str, lease_seconds: int) -> Lease | None:
        """Take the lease of the model; None while another worker holds it."""
        at = self.request_store.clock()
        lease = Lease(worker=worker, until=at + timedelta(seconds=lease_seconds), batch=secrets.token_hex(8))

        def taken(state: ModelState) -> ModelState | None:
            if state.lease and state.lease.until > at:
                return None
            return state.model_copy(update={"lease": lease})

        return lease if self._update(taken) else None

    def abandon_undecided(self) -> list[Decision]:
        """Abandon every undecided batch of earlier workers; return the decided ones that are not finished.

        Only the holder of the model's lease may call this, before claiming requests.
        """
        running = [
            r for r in self.request_store.open_requests() if r.model == self.model and r.state == "running" and r.lease
        ]
        batches = dict.fromkeys(request.lease.batch for request in running if request.lease)
        decided = [self.decide(Decision(batch=batch, outcome="abandoned")) for batch in batches]
        return [decision for decision in decided if decision.outcome == "certified"]

    def claim_all(self, lease: Lease, but: Container[str] = ()) -> list[DeletionRequest]:
        """Claim the open requests of the model, nearest deadline first, except those with the ids in `but`."""
        open_requests = [
            request
            for request in self.request_store.open_requests()
            if request.model == self.model and request.id not in but
        ]
        return [taken for request in open_requests if (taken := self.request_store.claim(request, lease))]

    def decide(self, decision: Decision) -> Decision:
        """Decide a batch; return the decision that was made first."""
        name = f"batches/{decision.batch}.json"
        try:
            self.request_store.store.create(name, decision.to_bytes())
        except OtherContentError:
            return self._decided(name, decision.batch)
        return decision

    def current(self) -> Files | None:
        """Return the model that the next deletion starts from; None: the trained model."""
        try:
            return self._parse(self.request_store.store.read(self._name)).current
        except NotThereError:
            return None

    def renew(self, lease: Lease, lease_seconds: int) -> bool:
        """Extend the lease from now on; False if another worker holds it."""
        until = self.request_store.clock() + timedelta(seconds=lease_seconds)
        return self._update_if_held(lease, {"lease": lease.model_copy(update={"until": until})})

    def release(self, lease: Lease) -> None:
        """Give up the lease, if it is still held."""
        self._update_if_held(lease, {"lease": None})

    def set_current(self, current: Files, lease: Lease) -> bool:
        """Set the model that the next deletion starts from; False if another worker holds the lease."""
        return self._update_if_held(lease, {"current": current})

    def end(
        self,
        batch: str,
        requests: Iterable[str],
        state: Literal["certified", "refused", "failed"],
        *,
        certificate: str | None = None,
        note: str = "",
    ) -> None:
        """Move requests to a final state, those that still belong to the batch."""

        def ended(request: DeletionRequest) -> DeletionRequest:
            if request.state != "running" or request.lease is None or request.lease.batch != batch:
                return request
            return request.moved(state, request.lease.worker, self.request_store.clock(), note, certificate=certificate)

        for identifier in requests:
            self.request_store.change(identifier, ended)

    def _decided(self, name: str, batch: str) -> Decision:
        try:
            decision = Decision.from_bytes(self.request_store.store.read(name), "decision of a batch", file=name)
            if decision.batch != batch:
                raise DataError("the decision belongs to another batch", file=name, value=decision.batch)
        except DataError as error:
            _log.warning("a batch counts as abandoned: %s", error)
            return Decision(batch=batch, outcome="abandoned")
        return decision

    def _update_if_held(self, lease: Lease, changes: dict[str, object]) -> bool:
        """Change the state of the model while the lease is held; False if it is not."""

        def changed(state: ModelState) -> ModelState | None:
            held = state.lease is not None and state.lease.batch == lease.batch
            return state.model_copy(update=changes) if held else None

        return self._update(changed)

    def _update(self, decide: Callable[[ModelState], ModelState | None]) -> bool:
        def changed(content: bytes | None) -> bytes | None:
            state = decide(ModelState() if content is None else self._parse(content))
            return state.to_bytes() if state else None

        return update(self.request_store.store, self._name, changed)

    def _parse(self, content: bytes) -> ModelState:
        hint = "restore the object from its last version"
        return ModelState.from_bytes(content, "state of the model", file=self._name, hint=hint)

    @property
    def _name(self) -> str:
        return f"models/{self.model}.json"

"""A batch of requests is carried out by one deletion, and decided once: certified or abandoned.

    models/NAME.json      the lease of the worker on this model
    batches/BATCH.json    the decision, created once: what was certified, or that the batch was abandoned
    batches/files/SHA256  files of a batch that are not published, from which any worker can finish it; encrypted what
                          may name persons

A worker takes the lease of the model by compare-and-swap, claims the requests, does the work, and *decides* the batch
by creating its object. A worker that takes over an expired lease first abandons the batches that are still running, by
creating the same objects. The store lets one of them succeed. If the old worker was faster, its certificate is valid
and only has to be published; if not, its own attempt to decide fails, and its work is discarded. So a request is
certified once, whichever worker is killed. A request is ended only by its own batch. A worker renews its lease while it
works, so an expired lease means that the worker died or lost the store.

None of these objects says what is true: the model that a deletion starts from follows from the log, and a decision is
published only if its certificate verifies (:mod:`mbd.production.worker`). An object that is not a valid decision counts
as abandoned, an invalid lease as none: they are reported, and cannot block the requests of the model. Nor can a lease
that ends later than any worker would set it.
"""

import hashlib
import logging
import secrets
import shutil
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from cryptography.exceptions import InvalidTag

from mbd.errors import DataError, MbdError
from mbd.files import STEP_FILE, file_digests, sha256_file, write_file
from mbd.formats.deletion import DELETION
from mbd.formats.layout import object_name
from mbd.formats.request import Decision, DeletionRequest, Files, Lease, ModelLease
from mbd.formats.statement import SUBJECTS
from mbd.production.request_store import RequestStore
from mbd.storage.store import OtherContentError, Store, update
from mbd.trust.commitments import LineageKey

_LONGEST = 2
"""a lease that ends later than this many times its length from now was set by no worker"""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batches:
    """The batches of one model in one store."""

    request_store: RequestStore
    model: str

    def take(self, worker: str, lease_seconds: int) -> Lease | None:
        """Take the lease of the model; None while another worker holds it."""
        at = self.request_store.clock()
        lease = Lease(worker=worker, until=at + timedelta(seconds=lease_seconds), batch=secrets.token_hex(8))
        latest = at + timedelta(seconds=_LONGEST * lease_seconds)

        def taken(held: Lease | None) -> ModelLease | None:
            return None if held and at < held.until <= latest else ModelLease(lease=lease)

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
        """Claim the open requests of the model that one deletion can carry out, except those with the ids in `but`.

        The one with the nearest deadline decides: whole modalities, or a modality of persons.
        """
        open_requests = [
            request
            for request in self.request_store.open_requests()
            if request.model == self.model and request.id not in but
        ]
        alike = [request for request in open_requests if request.kind == open_requests[0].kind]
        return [taken for request in alike if (taken := self.request_store.claim(request, lease))]

    def decide(self, decision: Decision) -> Decision:
        """Decide a batch; return the decision that was made first."""
        name = f"batches/{decision.batch}.json"
        try:
            self.request_store.store.create(name, decision.to_bytes())
        except OtherContentError:
            return self._decided(name, decision.batch)
        return decision

    def renew(self, lease: Lease, lease_seconds: int) -> bool:
        """Extend the lease from now on; False if another worker holds it."""
        until = self.request_store.clock() + timedelta(seconds=lease_seconds)
        return self._update_if_held(lease, ModelLease(lease=lease.model_copy(update={"until": until})))

    def release(self, lease: Lease) -> None:
        """Give up the lease, if it is still held."""
        self._update_if_held(lease, ModelLease())

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
        at = self.request_store.clock()
        self._change(batch, requests, lambda r, worker: r.moved(state, worker, at, note, certificate=certificate))

    def note(self, batch: str, requests: Iterable[str], note: str) -> None:
        """Note in the requests that still belong to the batch that a stage has ended.

        It decides nothing: without the store the work goes on, and the decision shows whether it counts.
        """
        at = self.request_store.clock()
        with suppress(MbdError):
            self._change(batch, requests, lambda r, worker: r.noted(note, worker, at))

    def _change(
        self, batch: str, requests: Iterable[str], change: Callable[[DeletionRequest, str], DeletionRequest]
    ) -> None:
        """Change the requests that still belong to a batch; `change` gets each with its worker."""

        def changed(request: DeletionRequest) -> DeletionRequest:
            own = request.state == "running" and request.lease and request.lease.batch == batch
            return change(request, request.lease.worker) if own and request.lease else request

        for identifier in requests:
            self.request_store.change(identifier, changed)

    def _decided(self, name: str, batch: str) -> Decision:
        try:
            decision = Decision.from_bytes(self.request_store.store.read(name), "decision of a batch", file=name)
            if decision.batch != batch:
                raise DataError("the decision belongs to another batch", file=name, value=decision.batch)
        except DataError as error:
            _LOG.warning("a batch counts as abandoned: %s", error)
            return Decision(batch=batch, outcome="abandoned")
        return decision

    def _update_if_held(self, lease: Lease, changed: ModelLease) -> bool:
        """Replace the lease of the model while it is held; False if it is not."""
        return self._update(lambda held: changed if held is not None and held.batch == lease.batch else None)

    def _update(self, decide: Callable[[Lease | None], ModelLease | None]) -> bool:
        def changed(content: bytes | None) -> bytes | None:
            decided = decide(self._parse(content) if content is not None else None)
            return decided.to_bytes() if decided else None

        return update(self.request_store.store, self._name, changed)

    def _parse(self, content: bytes) -> Lease | None:
        try:
            return ModelLease.from_bytes(content, "lease of the model", file=self._name).lease
        except DataError as error:
            _LOG.warning("a lease is ignored: %s", error)
            return None

    @property
    def _name(self) -> str:
        return f"models/{self.model}.json"


@dataclass(frozen=True)
class BatchFiles:
    """Where the files of batches are kept: what is to be published in the store, the rest in its private part."""

    published: Store
    private: Store
    key: LineageKey

    def keep(self, folder: Path) -> Files:
        """Put a step's folder into the store, file by file."""
        files = {**file_digests(folder), STEP_FILE: sha256_file(folder / STEP_FILE)}
        for name, digest in files.items():
            store, place = self._place(name, digest)
            sealed = name == DELETION
            store.create(place, self.key.seal(digest, (folder / name).read_bytes()) if sealed else folder / name)
        return Files(files=files)

    def fetch(self, kept: Files, folder: Path) -> None:
        """Bring the files to a folder, in place of what is there; DataError if one is missing or damaged."""
        if folder.exists():
            shutil.rmtree(folder)
        for name, digest in kept.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            store, place = self._place(name, digest)
            if name == DELETION:
                write_file(folder / name, self._unsealed(store, place, digest))
            else:
                store.fetch(place, folder / name, sha256=digest)

    def _place(self, name: str, digest: str) -> tuple[Store, str]:
        if name in SUBJECTS:
            return self.published, object_name(digest)
        return self.private, f"batches/files/{digest}"

    def _unsealed(self, store: Store, place: str, digest: str) -> bytes:
        try:
            content = self.key.unseal(digest, store.read(place))
        except (InvalidTag, ValueError) as error:
            raise DataError("a file of the batch is damaged", file=place) from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise DataError("a file of the batch has another digest", file=place, value=digest)
        return content

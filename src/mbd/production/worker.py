"""Step `request run`: carry out the open requests for one model, by one deletion for all of them at a time.

For a batch of requests: fetch the current release, its data and its registered reference (train one only if none is
registered), run the stages up to the certificate (:mod:`mbd.production.stages`), put everything into the store under
its digest, decide the batch, publish. From the decision on, any worker can finish a batch from the store alone
(:mod:`mbd.production.batches`). A worker that is killed before the decision leaves nothing that counts; the next one
begins again, and removes its folder, which holds copies of the old model.

What is deleted from follows from the log (:mod:`mbd.production.releases`), and what is published from a certificate
that verifies: a decision in the store only says which one. It must be for this batch and made from the current model;
otherwise the requests are carried out again.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from threading import Event, Thread
from typing import Literal

from mbd.errors import DataError, GateRefusedError, MbdError, VerificationError
from mbd.files import to_json, write_file
from mbd.formats.model import ModelRecord
from mbd.formats.request import Decision, DeletionRequest, Lease
from mbd.formats.statement import DeletionStatement
from mbd.history.lineage import read_subject
from mbd.log.reader import LogDamagedError
from mbd.model.checkpoint import load_model
from mbd.params import Params
from mbd.production.answers import Answers, answer_person, certified_before, holds_recordings
from mbd.production.batches import Batches, BatchFiles
from mbd.production.releases import DeletionBase, Start, find_base, modalities_to_delete, obtain_reference, open_data
from mbd.production.request_store import RequestStore
from mbd.production.stages import BUNDLE, DELETED, Stages
from mbd.shredding.private_folder import private_folder
from mbd.steps.publish import open_publisher
from mbd.steps.revoked import read_log
from mbd.storage import open_store
from mbd.storage.store import Store
from mbd.trust.commitments import read_lineage_key
from mbd.verifier.bundle import Bundle

_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0
_DOUBLINGS = 30
"""of a pause, at most: a float has an end"""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """A worker that carries out the requests for one model."""

    params: Params
    request_store: RequestStore
    store_url: str
    features: Path | None
    """the FeatureSet that the model was made from; None: it is brought here, by the revision that was registered"""
    model: Path | None
    """the model, where the log has no release of the name; otherwise it must be of its lineage"""
    name: str

    def run(self, but: Iterable[str] = ()) -> Iterator[tuple[DeletionRequest, str]]:
        """Carry out open requests until there are none, except those with the ids in `but`.

        Yields:
            Each request with its outcome in words.

        """
        batches = Batches(self.request_store, self.params.certificate.model)
        self._reopen()
        tried = set(but)
        while any(r.model == batches.model and r.id not in tried for r in self.request_store.open_requests()):
            lease = batches.take(self.name, self.params.requests.lease_seconds)
            if lease is None:
                return  # another worker holds the lease
            try:
                with _renewed(batches, lease, self.params.requests.lease_seconds):
                    # While nothing can be logged, each attempt would spend privacy budget for nothing.
                    read_lineage_key(self.params.certificate)
                    open_publisher(self.params, self.store_url).complete()
                    for decision in batches.abandon_undecided():
                        self._finish_or_report(batches, decision)
                    base = find_base(self.params, self.store_url, self.model)
                    claimed = batches.claim_all(lease, but=tried)
                    tried |= {request.id for request in claimed}
                    self._carry_out(batches, lease, claimed, base)
            finally:
                batches.release(lease)
            yield from ((done, _in_words(done)) for done in map(self.request_store.get, (r.id for r in claimed)))

    def _reopen(self) -> None:
        """Open the requests of the model again that are marked as certified while the log does not show it.

        Its certificate was withdrawn since, is in doubt, or is that of another person; the request must not be lost.
        """
        model = self.params.certificate.model
        marked = [r for r in self.request_store.all() if r.model == model and r.state == "certified"]
        if not marked:
            return
        history = read_log(self.params, self.store_url)
        answers = self._answers

        def opened(request: DeletionRequest) -> DeletionRequest:
            if request.state != "certified" or answers.is_answered(request, history):
                return request
            _LOG.warning("request %s was marked as certified, and no certificate in the log shows it", request.id)
            note = "no certificate in the log shows this deletion"
            return request.moved("failed", self.name, self.request_store.clock(), note, certificate=None)

        for request in marked:
            if opened(request) is not request:
                self.request_store.change(request.id, opened)

    def watch(self, wait: Callable[[float], bool]) -> Iterator[tuple[DeletionRequest, str]]:
        """Carry out requests as they come; one that failed is tried again after growing pauses.

        Args:
            wait: Waits for some seconds; whether to go on afterwards.

        Yields:
            Each request with its outcome in words.

        """
        pauses: dict[str, float] = {}
        again: dict[str, float] = {}
        failures = 0
        while True:
            resting = [request for request, at in again.items() if time.monotonic() < at]
            try:
                for request, outcome in self.run(resting):
                    if request.state == "failed":
                        pauses[request.id] = min(2 * pauses.get(request.id, _FIRST_PAUSE / 2), _LONGEST_PAUSE)
                        again[request.id] = time.monotonic() + pauses[request.id]
                    yield request, outcome
                failures = 0
            except (MbdError, OSError) as error:  # such as a store that is away: the next time may succeed
                failures += 1
                _LOG.warning("carrying out requests failed: %s", error)
            if not wait(min(self.params.serving.poll_seconds * 2.0 ** min(failures, _DOUBLINGS), _LONGEST_PAUSE)):
                return

    def _carry_out(
        self, batches: Batches, lease: Lease, claimed: Sequence[DeletionRequest], base: DeletionBase
    ) -> None:
        with private_folder(gettempdir()) as work:
            model = base.fetch(work / "base")
            record, _ = load_model(model)
            pending, decision = list(claimed), Decision(batch=lease.batch, outcome="abandoned")
            try:
                with open_data(base, record, self.features, work) as data:
                    start = Start(base, model, record, data, work)
                    answered = self._without_answered(batches, lease, claimed, start)
                    again = base.returned(record.inputs)
                    pending = list(self._without_the_last_modality(batches, lease, answered, record, again))
                    if not pending:
                        return
                    decision = batches.decide(self._certified(batches, start, lease, pending))
            except MbdError as error:
                batches.decide(decision)
                state: Literal["refused", "failed"] = "refused" if isinstance(error, GateRefusedError) else "failed"
                batches.end(lease.batch, [request.id for request in pending], state, note=error.problem)
                return
        if decision.outcome == "certified":  # else the lease has expired, and another worker has these requests
            self._finish_or_report(batches, decision, pending)

    def _without_answered(
        self, batches: Batches, lease: Lease, claimed: Sequence[DeletionRequest], start: Start
    ) -> Iterator[DeletionRequest]:
        """End the requests that need no deletion; yield the others."""
        for request in claimed:
            end = partial(batches.end, lease.batch, [request.id])
            record, history = start.record, start.base.history
            unknown = [m for m in request.modalities if m not in record.modalities and m not in record.revoked]
            if unknown:
                end("refused", note=f"the model has no modality {', '.join(unknown)}")
            elif set(request.modalities) <= set(record.revoked):
                certificate = certified_before(request, history)
                if certificate:
                    end("certified", certificate=certificate, note="deleted before")
                else:
                    names = ", ".join(request.modalities)
                    end("failed", note=f"{names}: deleted before, but no valid certificate in the log shows it")
            elif request.subject and not holds_recordings(
                start.data, request.modalities, self._subject(request, start.base)
            ):
                digest, note = answer_person(start, request, self._subject(request, start.base), self.store_url)
                end("certified", certificate=digest, note=note)
            else:
                yield request

    def _without_the_last_modality(
        self,
        batches: Batches,
        lease: Lease,
        requests: Iterable[DeletionRequest],
        record: ModelRecord,
        again: Sequence[str],
    ) -> Iterator[DeletionRequest]:
        """Refuse the requests that would leave the model without any modality; yield the others."""
        taken = set(again)
        for request in requests:
            if not request.subject and set(record.inputs) <= taken.union(request.modalities):
                batches.end(lease.batch, [request.id], "refused", note="it would leave the model without any modality")
            else:
                taken.update(() if request.subject else request.modalities)
                yield request

    def _subject(self, request: DeletionRequest, base: DeletionBase) -> str:
        return read_subject(self.request_store.store, request.subject or "", base.key)

    def _certified(self, batches: Batches, start: Start, lease: Lease, pending: Sequence[DeletionRequest]) -> Decision:
        """Do the work, put all of it into the store, and return the decision that it leads to."""
        work, reference = start.work, None
        write_file(work / "request.json", to_json(_request_document(lease, pending)))
        if pending[0].subject:
            subjects = sorted({self._subject(request, start.base) for request in pending})
            stages = Stages(self.params, pending[0].modalities, subjects)
        else:
            modalities = modalities_to_delete(
                start.base, start.record, [m for request in pending for m in request.modalities]
            )
            stages, reference = Stages(self.params, modalities), work / "reference"
            obtain_reference(start.base, start.record, modalities, nullcontext(start.data), reference)
        ended = partial(batches.note, lease.batch, [request.id for request in pending])
        done = stages.run(start.data, start.model, reference, work / "request.json", work, ended)
        files = BatchFiles(self._published, self.request_store.store, start.base.key)
        return Decision(
            batch=lease.batch,
            outcome="certified",
            requests=tuple(request.id for request in pending),
            certificate=done.certificate,
            bundle=files.keep(work / BUNDLE),
            model=files.keep(work / DELETED),
        )

    def _finish_or_report(self, batches: Batches, decision: Decision, own: Iterable[DeletionRequest] = ()) -> None:
        """Finish a batch; one that cannot be published is reported, and its requests stay open.

        Anyone who can write to the store can leave such a decision as that of an earlier worker, and it must not block
        the requests of the model. A damaged log is another matter: the decision is kept until it is repaired.
        """
        try:
            self._finish(batches, decision)
        except LogDamagedError:
            raise
        except (DataError, VerificationError) as error:
            _LOG.warning(
                "batch %s cannot be published, so its requests are carried out again: %s", decision.batch, error
            )
            batches.end(decision.batch, [request.id for request in own], "failed", note=error.problem)

    def _finish(self, batches: Batches, decision: Decision) -> None:
        """Publish what was decided, from the store alone, and end its requests."""
        if decision.bundle is None or decision.model is None or decision.certificate is None:
            raise DataError("the decision has no bundle, model or certificate", file=f"batches/{decision.batch}.json")
        answers = self._answers
        files = BatchFiles(self._published, self.request_store.store, answers.key)
        with private_folder(gettempdir()) as work:
            files.fetch(decision.bundle, work / "bundle")
            files.fetch(decision.model, work / "model")
            statement = self._check(decision, Bundle(work / "bundle"))
            Stages(self.params).publish(work / "bundle", work / "model", self.store_url, base=self.model)
        answered = answers.answered_by(statement, decision.certificate, self.request_store.all())
        requests = [request for request in decision.requests if request in answered]
        batches.end(decision.batch, requests, "certified", certificate=decision.certificate)
        find_base(self.params, self.store_url, None)  # remembers the log's head: a later rollback is noticed here

    def _check(self, decision: Decision, bundle: Bundle) -> DeletionStatement:
        """Check that a decision names a certificate of its own batch; return it.

        Its signatures, its files and what it was made from are checked when it is published.
        """
        statement = bundle.statement
        if (
            not isinstance(statement, DeletionStatement)
            or bundle.digest != decision.certificate
            or statement.predicate.model != self.params.certificate.model
            or statement.predicate.request.reference != _reference(decision.batch)
        ):
            raise DataError("the decision names a certificate of another batch", file=f"batches/{decision.batch}.json")
        return statement

    @property
    def _answers(self) -> Answers:
        settings = self.params.certificate
        return Answers(read_lineage_key(settings), Path(settings.private))

    @property
    def _published(self) -> Store:
        return open_store(self.store_url, self.params.store)


@contextmanager
def _renewed(batches: Batches, lease: Lease, lease_seconds: int) -> Iterator[None]:
    """Within: the lease is renewed three times before it would be over. A killed process renews nothing."""
    done = Event()

    def renew() -> None:
        while not done.wait(lease_seconds / 3):
            try:
                if not batches.renew(lease, lease_seconds):
                    return
            except MbdError:
                continue  # the store is away: the work goes on, and whether it counts is decided at its end

    thread = Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _reference(batch: str) -> str:
    """Return how a certificate names the requests that it answers."""
    return f"batch-{batch}"


def _request_document(lease: Lease, pending: Sequence[DeletionRequest]) -> dict[str, str]:
    """Return what the certificate says of the requests: a reference, when the first came in, when it was due."""
    return {
        "reference": _reference(lease.batch),
        "received": min(request.received for request in pending).isoformat().replace("+00:00", "Z"),
        "due": min(request.due for request in pending).isoformat().replace("+00:00", "Z"),
    }


def _in_words(request: DeletionRequest) -> str:
    last = request.history[-1]
    if request.certificate:
        return f"certificate {request.certificate}"
    return last.note or request.state

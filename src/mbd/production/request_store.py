"""The requests in a store: `requests/ID.json`, one object each, changed only by compare-and-swap.

An object counts as a request only with its MAC under the key of requests (:mod:`mbd.formats.request`): others are
listed as not authentic, and never carried out. A store that is opened without the key can only be read.

Two workers that want the same request both read it and try to replace it; the store lets one of them succeed. An object
that is not a valid request is reported and skipped, so that it cannot block the others.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from pydantic import ValidationError

from mbd.errors import DataError, UsageError
from mbd.formats.request import OPEN, REQUESTS, DeletionRequest, Event, Lease, parse_request, request_name
from mbd.params import Params
from mbd.records import invalid, now
from mbd.storage import open_private
from mbd.storage.store import NotThereError, OtherContentError, Store, update
from mbd.trust.commitments import RequestKey, find_request_key

Clock = Callable[[], datetime]
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RequestStore:
    """The requests of one store."""

    store: Store
    key: RequestKey | None
    """None: requests are read as they state, and none is entered or changed"""
    clock: Clock = now

    @classmethod
    def open(cls, params: Params, url: str) -> Self:
        """Return the requests of the store at `url`, with their key where it is."""
        return cls(open_private(url, params.store), find_request_key(params.certificate))

    def is_authentic(self, request: DeletionRequest) -> bool:
        """Return whether a holder of the key has written a request; without the key, that is not known."""
        return self.key is None or self.key.is_mac(request.mac, request.authenticated)

    def _sealed(self, request: DeletionRequest) -> DeletionRequest:
        if self.key is None:
            raise UsageError(
                "requests are entered and changed under their key, and it is not here",
                key="certificate.lineage_key",
                hint="give this machine lineage.key, or request.key in its place (`mbd keys new` makes both)",
            )
        return request.model_copy(update={"mac": self.key.mac(request.authenticated)})

    def submit(
        self,
        model: str,
        modalities: Sequence[str],
        *,
        due_days: int,
        subject: str | None = None,
        reason: str = "",
        requester: str = "",
        token: str | None = None,
    ) -> DeletionRequest:
        """Create a request, or return the existing one with the same `token`; `subject` is the pseudonym of a person.

        Raises:
            UsageError: A value is not valid, or the token belongs to another request.
        """
        at = self.clock()
        try:
            request = DeletionRequest(
                id=hashlib.sha256(token.encode()).hexdigest()[:16] if token else secrets.token_hex(8),
                model=model,
                modalities=tuple(sorted(set(modalities))),
                subject=subject,
                reason=reason,
                requester=requester,
                received=at,
                due=at + timedelta(days=due_days),
                history=(Event(at=at, state="received", by="submit"),),
            )
        except ValidationError as error:
            raise invalid(error, "request", kind=UsageError) from error
        request = self._sealed(request)
        try:
            self.store.create(request_name(request.id), request.to_bytes())
        except OtherContentError:
            known = self._authentic(self.get(request.id))
            if (known.model, known.modalities, known.subject) != (request.model, request.modalities, request.subject):
                raise UsageError(
                    "this token belongs to another request",
                    key="--token",
                    value=token,
                    hint=f"`mbd request show {known.id}` shows it; use a new token for a new request",
                ) from None
            return known
        return request

    def get(self, identifier: str) -> DeletionRequest:
        """Return a request by its id.

        Raises:
            NotThereError: There is no such request.
            DataError: The object is not a valid request.
        """
        name = request_name(identifier)
        try:
            return parse_request(self.store.read(name), name)
        except NotThereError as error:
            raise _no_request(identifier) from error

    def all(self) -> Iterator[DeletionRequest]:
        """Yield every authentic request, by id; others are reported as warnings."""
        for request in self.stated():
            if self.is_authentic(request):
                yield request
            else:
                _LOG.warning("request %s is not authentic, and is never carried out", request.id)

    def stated(self) -> Iterator[DeletionRequest]:
        """Yield every valid request, by id, authentic or not; other objects are reported as warnings."""
        for entry in self.store.list(REQUESTS):
            try:
                yield parse_request(self.store.read(entry.name), entry.name)
            except NotThereError:
                continue
            except DataError as error:
                _LOG.warning("skipped an object that is not a request: %s", error)

    def cancel(self, identifier: str) -> DeletionRequest:
        """Cancel a request that no worker has started."""

        def cancelled(request: DeletionRequest) -> DeletionRequest:
            if request.state not in ("received", "failed"):
                raise UsageError(
                    f"the request is {request.state} and can no longer be cancelled", key="ID", value=identifier
                )
            return request.moved("cancelled", "cancel", self.clock())

        return self.change(identifier, cancelled)

    def change(self, identifier: str, decide: Callable[[DeletionRequest], DeletionRequest]) -> DeletionRequest:
        """Change a request by compare-and-swap.

        Args:
            identifier: Id of the request.
            decide: Returns the next state of the request, or the same object to change nothing. It is called again if
                another writer was faster.
        """
        decided: DeletionRequest | None = None

        def changed(content: bytes | None) -> bytes | None:
            nonlocal decided
            if content is None:
                raise _no_request(identifier)
            request = self._authentic(parse_request(content, request_name(identifier)))
            decided = decide(request)
            if decided is request:
                return None
            decided = self._sealed(decided)
            return decided.to_bytes()

        update(self.store, request_name(identifier), changed)
        assert decided is not None  # noqa: S101 -- update calls `changed` at least once
        return decided

    def _authentic(self, request: DeletionRequest) -> DeletionRequest:
        if self.is_authentic(request):
            return request
        raise DataError(
            "this request is not authentic: it was not written under the key of requests",
            file=request_name(request.id),
            hint="find out who can write to the private part of the store, remove the object, and submit what is due",
        )

    def claim(self, request: DeletionRequest, lease: Lease) -> DeletionRequest | None:
        """Add a request to the batch of a lease; None if the request is no longer open.

        Only the holder of the model's lease may call this, so a request that is running belongs to a dead batch.
        """

        def claimed(current: DeletionRequest) -> DeletionRequest:
            return (
                current.moved("running", lease.worker, self.clock(), lease=lease) if current.state in OPEN else current
            )

        taken = self.change(request.id, claimed)
        return taken if taken.lease == lease else None

    def open_requests(self) -> list[DeletionRequest]:
        """Return the open requests, nearest deadline first."""
        return sorted((r for r in self.all() if r.state in OPEN), key=lambda r: (r.due, r.id))


def refuse_several(modalities: Sequence[str]) -> None:
    """Refuse a person's request about more than one modality."""
    if len(set(modalities)) != 1:
        raise UsageError("a person's request is about one modality", key="modalities", value=", ".join(modalities))


def _no_request(identifier: str) -> NotThereError:
    return NotThereError("there is no such request", key="ID", value=identifier, hint="`mbd request list` shows them")

"""The book of requests in a store: `requests/ID.json`, one object each, changed by compare-and-swap only.

Two workers that want the same request both read it and both try to replace what they read; the store lets one of them.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import ValidationError

from mbd.errors import DataError, UsageError
from mbd.formats.request import OPEN, DeletionRequest, Event, Lease
from mbd.records import now
from mbd.storage.store import ConflictError, NotThereError, OtherContentError, Store

PREFIX = "requests/"
Clock = Callable[[], datetime]


@dataclass(frozen=True)
class RequestStore:
    """The requests of one store."""

    store: Store
    clock: Clock = now

    def submit(
        self,
        model: str,
        modalities: Sequence[str],
        *,
        due_days: int,
        reason: str = "",
        requester: str = "",
        token: str | None = None,
    ) -> DeletionRequest:
        """Enter a request; the same `token` again gives the request that is there."""
        at = self.clock()
        try:
            request = DeletionRequest(
                id=hashlib.sha256(token.encode()).hexdigest()[:16] if token else secrets.token_hex(8),
                model=model,
                modalities=tuple(sorted(set(modalities))),
                reason=reason,
                requester=requester,
                received=at,
                due=at + timedelta(days=due_days),
                history=(Event(at=at, state="received", by="submit"),),
            )
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise UsageError(
                f"this is no request: {first['msg']}", key=str(first["loc"][0]), value=first["input"]
            ) from error
        try:
            self.store.create(_name(request.id), _bytes(request))
        except OtherContentError:
            known = self.get(request.id)
            if (known.model, known.modalities) != (request.model, request.modalities):
                raise UsageError(
                    "this token belongs to another request",
                    key="--token",
                    value=token,
                    hint=f"`mbd request show {known.id}` shows it; give a new token for a new request",
                ) from None
            return known
        return request

    def get(self, identifier: str) -> DeletionRequest:
        """Return a request by its id."""
        return self._tagged(identifier)[0]

    def all(self) -> Iterator[DeletionRequest]:
        """Yield every request, by id."""
        for entry in self.store.list(PREFIX):
            yield _parsed(self.store.read(entry.name), entry.name)

    def cancel(self, identifier: str) -> DeletionRequest:
        """Cancel a request that nobody has begun to carry out."""

        def cancelled(request: DeletionRequest) -> DeletionRequest:
            if request.state not in ("received", "failed"):
                raise UsageError(
                    f"the request is {request.state} and can no longer be cancelled", key="ID", value=identifier
                )
            return request.moved("cancelled", "cancel", self.clock())

        return self.change(identifier, cancelled)

    def change(self, identifier: str, decide: Callable[[DeletionRequest], DeletionRequest]) -> DeletionRequest:
        """Let `decide` make the next state of the request as it is, and again if somebody else was faster."""
        while True:
            request, tag = self._tagged(identifier)
            decided = decide(request)
            try:
                self.store.replace(_name(identifier), _bytes(decided), expected=tag)
            except ConflictError:
                continue
            return decided

    def claim(self, request: DeletionRequest, lease: Lease) -> DeletionRequest | None:
        """Let a request be part of the lease's batch; None if it is no longer owed, or was cancelled just now.

        Only who holds the model's lease may call this, so a request that still runs belongs to a batch that is dead.
        """
        found, tag = self._tagged(request.id)
        if found.state not in OPEN:
            return None
        taken = found.moved("running", lease.worker, self.clock(), lease=lease)
        try:
            self.store.replace(_name(request.id), _bytes(taken), expected=tag)
        except ConflictError:
            return None
        return taken

    def open_requests(self) -> list[DeletionRequest]:
        """Return the requests that are not done, nearest deadline first."""
        return sorted((r for r in self.all() if r.state in OPEN), key=lambda r: (r.due, r.id))

    def _tagged(self, identifier: str) -> tuple[DeletionRequest, str]:
        name = _name(identifier)
        try:
            data, tag = self.store.read_tagged(name)
        except NotThereError as error:
            raise NotThereError(
                "there is no such request", key="ID", value=identifier, hint="`mbd request list` shows them"
            ) from error
        return _parsed(data, name), tag


def _name(identifier: str) -> str:
    return f"{PREFIX}{identifier}.json"


def _bytes(request: DeletionRequest) -> bytes:
    return request.to_bytes()


def _parsed(data: bytes, name: str) -> DeletionRequest:
    try:
        return DeletionRequest.model_validate_json(data)
    except ValidationError as error:
        raise DataError(
            "a request in the store is damaged", file=name, hint="restore the object from its last version"
        ) from error

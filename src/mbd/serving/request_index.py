"""The requests of a store in memory, by deadline: lists page through it, events come out of it.

It is what the last scan of the store found (:class:`mbd.monitoring.store_monitor.StoreMonitor`), and what was written
here since. No key signs a request: that one is certified is believed only if the log has a certificate that shows it. A
list is a hint; a single request is always read from the store.

An *event* is one change of one request's state. Its id, `REQUEST-NUMBER`, follows from the request's history, so every
server gives an event the same id, and a receiver can recognise one that it has seen.
"""

import base64
import binascii
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from mbd.formats.request import DeletionRequest, State
from mbd.monitoring.store_scanner import RequestFacts, StoreSnapshot, facts_of_request
from mbd.serving.problems import ApiError

_KEPT = 1000
"""events that a client can have missed and still receive"""


@dataclass(frozen=True, order=True)
class RequestEvent:
    """One change of a request's state; in order of time."""

    at: float
    id: str
    request: str
    state: State
    model: str
    modalities: tuple[str, ...]
    certificate: str | None
    """as of now, for the last state"""

    def document(self) -> dict[str, object]:
        """Return what clients get of it."""
        return {
            "id": self.id,
            "type": f"request.{self.state}",
            "at": f"{datetime.fromtimestamp(self.at, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "request": self.request,
            "state": self.state,
            "model": self.model,
            "modalities": list(self.modalities),
            "certificate": self.certificate,
        }


def events_of(facts: RequestFacts, first: int = 0) -> Iterator[RequestEvent]:
    """Yield the events of a request, from the `first` on."""
    last = len(facts.events) - 1
    for number, (state, at) in enumerate(facts.events[first:], start=first):
        certificate = facts.certificate if number == last else None
        yield RequestEvent(at, f"{facts.id}-{number}", facts.id, state, facts.model, facts.modalities, certificate)


class RequestIndex:
    """The requests of a store, and the events that follow from their changes."""

    def __init__(self) -> None:
        self._facts: dict[str, RequestFacts] = {}
        self._sorted: list[RequestFacts] = []
        self._written: dict[str, tuple[float, RequestFacts]] = {}
        self._recent: list[RequestEvent] = []
        self._listeners: list[Callable[[list[RequestEvent]], object]] = []
        self._lock = threading.Lock()
        self.complete = False
        """whether a first scan has ended"""

    def subscribe(self, listener: Callable[[list[RequestEvent]], object]) -> Callable[[], None]:
        """Call `listener` with new events, from any thread; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def scanned(self, snapshot: StoreSnapshot, began: float) -> None:
        """Take over what a scan found that began at a time of the monotonic clock."""
        requests = {facts.id: facts for facts in snapshot.valid_requests}
        with self._lock:
            # What was written here after the scan had begun is newer than what the scan has, or not in it at all.
            self._written = {key: written for key, written in self._written.items() if written[0] >= began}
            self._take(requests | {key: facts for key, (_, facts) in self._written.items()})
            self.complete = True

    def written(self, request: DeletionRequest) -> bool:
        """Take over a request that was written here; return whether that is news."""
        facts = facts_of_request(request)
        with self._lock:
            known = self._facts.get(request.id)
            self._written[request.id] = time.monotonic(), facts
            self._take(self._facts | {request.id: facts})
        return known != facts

    def all(self) -> list[RequestFacts]:
        """Return all requests, nearest deadline first."""
        return self._sorted

    def page(
        self, wanted: Callable[[RequestFacts], bool], limit: int, after: str | None
    ) -> tuple[list[RequestFacts], str | None]:
        """Return some requests, nearest deadline first, and where the next page begins (None: there is none)."""
        ordered = self._sorted
        start = bisect_right(ordered, _parse(after), key=_order) if after else 0
        page: list[RequestFacts] = []
        for facts in ordered[start:]:
            if wanted(facts):
                if len(page) == limit:
                    return page, _cursor(page[-1])
                page.append(facts)
        return page, None

    def events(self, since: float = float("-inf")) -> list[RequestEvent]:
        """Return all events from a time on, in order."""
        changed = [facts for facts in list(self._facts.values()) if facts.events and facts.events[-1][1] >= since]
        return sorted(event for facts in changed for event in events_of(facts) if event.at >= since)

    def missed(self, last: str) -> list[RequestEvent]:
        """Return the recent events after the one with the id `last`; none if it is not among them."""
        recent = list(self._recent)
        index = next((number for number, event in enumerate(recent) if event.id == last), len(recent))
        return recent[index + 1 :]

    def _take(self, found: dict[str, RequestFacts]) -> None:
        before, self._facts = self._facts, found
        if before == found:
            return
        self._sorted = sorted(found.values(), key=_order)
        fresh = sorted(
            event
            for identifier, facts in found.items()
            if before.get(identifier) is not facts
            for event in events_of(facts, len(before[identifier].events) if identifier in before else 0)
        )
        self._recent = [*self._recent, *fresh][-_KEPT:]
        if fresh and self.complete:  # those of the first scan happened before this server began
            for listener in list(self._listeners):
                listener(fresh)


def _order(facts: RequestFacts) -> tuple[float, str]:
    return facts.due, facts.id


def _cursor(facts: RequestFacts) -> str:
    return base64.urlsafe_b64encode(f"{facts.due!r} {facts.id}".encode()).decode().rstrip("=")


def _parse(cursor: str) -> tuple[float, str]:
    try:
        due, identifier = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(" ")
        return float(due), identifier
    except (ValueError, binascii.Error) as error:
        raise ApiError(422, "this is not where a page begins", key="after", hint="take it from `next`") from error

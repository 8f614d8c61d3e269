"""Webhooks: every change of a request's state is posted to the URLs in `serving.webhooks`, signed, at least once.

A post has the headers of the Standard Webhooks specification:

    webhook-id           the event's id, the same each time it is sent
    webhook-timestamp    seconds since the epoch
    webhook-signature    v1,BASE64 of HMAC-SHA256(secret, "ID.TIMESTAMP.BODY")

The queue needs no objects of its own: events follow from the history of the requests, and one small object for each
URL, `webhooks/ID.json` in the private part of the store, says which have been delivered. So it survives a restart, and
a *replay* just moves its time back. An answer 2xx is a delivery. 4xx (but 408 and 429) is a refusal: the event is
counted and left. After any other answer, or none, the event is sent again with growing pauses, for as long as it takes;
later events of that URL wait, so their order is kept.

A new URL receives events from then on. An event that becomes known here later than ten minutes after its time may
not be sent.
"""

import base64
import hashlib
import hmac
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from random import Random

from mbd.background import Background
from mbd.errors import DataError, MbdError, UsageError
from mbd.formats.access import WebhookState
from mbd.records import now
from mbd.serving.request_index import RequestEvent, RequestIndex
from mbd.storage.store import Store, update

SECRET = "MBD_WEBHOOK_SECRET"  # noqa: S105 -- the name of a variable
_PREFIX = "whsec_"
_SHORTEST = 24
_LATE = timedelta(minutes=10)
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_AGAIN = {408, 429}
_KEPT = 256
_LOG = logging.getLogger(__name__)


def read_secret() -> bytes:
    """Return the secret that posts are signed with, from the environment.

    Raises:
        UsageError: There is none, or it is too short.
    """
    text = os.environ.get(SECRET, "")
    try:
        secret = base64.b64decode(text.removeprefix(_PREFIX), validate=True) if text.startswith(_PREFIX) else b""
    except ValueError:  # it is not base64, or not ASCII
        secret = b""
    if len(secret) < _SHORTEST:
        raise UsageError(
            f"webhooks need a secret of at least {_SHORTEST} bytes",
            key=SECRET,
            hint=f"export {SECRET}={_PREFIX}$(openssl rand -base64 32), and give it to the receiver",
        )
    return secret


def signature(secret: bytes, identifier: str, timestamp: int, body: bytes) -> str:
    """Return the header `webhook-signature`."""
    signed = f"{identifier}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the operator has named the address."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass
class Webhook(Background):
    """Delivers events to one URL, in a thread of its own, which ends after the post in progress."""

    url: str
    secret: bytes = field(repr=False)
    store: Store
    index: RequestIndex
    timeout: float = 10.0
    first_pause: float = _FIRST_PAUSE
    failures: int = 0

    def __post_init__(self) -> None:
        self.id = hashlib.sha256(self.url.encode()).hexdigest()[:16]
        super().__init__(f"webhook-{self.id}", self.timeout)
        self._opener = urllib.request.build_opener(_NoRedirects())
        self._state: WebhookState | None = None
        self._pauses = Random()  # noqa: S311 -- pauses are no secret

    def pending(self) -> list[RequestEvent]:
        """Return the events that were not delivered yet, in order."""
        if self._state is None:
            return []
        done = set(self._state.delivered)
        return [event for event in self.index.events(self._state.since.timestamp()) if event.id not in done]

    def replay(self, since: datetime) -> int:
        """Send all events from a time on again; return how many that are."""
        self._change(lambda known: WebhookState(since=since, replays=known.replays + 1 if known else 1))
        self.wake()
        return len(self.index.events(since.timestamp()))

    def _run(self) -> None:
        pause = self.first_pause
        while not self._stop.is_set():
            self._wake.clear()
            try:
                done = self._deliver_all()
            except (MbdError, OSError) as error:  # the store is away: nothing is lost, and it is tried again
                _LOG.warning("webhook %s: its state cannot be read or written (%s)", self.id, type(error).__name__)
                done = False
            if done:
                pause = self.first_pause
                self._wake.wait(_LONGEST_PAUSE)
            else:
                self._stop.wait(pause * self._pauses.uniform(0.5, 1))
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _deliver_all(self) -> bool:
        """Deliver what is pending; False if something has to be sent again."""
        if self._state is None:
            self._change(lambda known: known or WebhookState(since=now()))
        if not self.index.complete:
            return True  # what ends the first scan wakes it
        replays = self._state.replays if self._state else 0
        for event in self.pending():
            if self._stop.is_set():
                return True
            if not self._post(event):
                self.failures += 1
                return False
            self._done_with(event, replays)
        return True

    def _done_with(self, event: RequestEvent, replays: int) -> None:
        """Note that an event was delivered, unless a replay was asked for since `replays` of them.

        Ids are dropped once no new event can be as old as theirs.
        """

        def changed(known: WebhookState | None) -> WebhookState:
            known = known or WebhookState(since=now(), replays=replays)
            if known.replays != replays:
                return known
            delivered = tuple(dict.fromkeys((*known.delivered, event.id)))
            if len(delivered) < _KEPT:
                return known.model_copy(update={"delivered": delivered})
            start = max(known.since, datetime.fromtimestamp(event.at, UTC) - _LATE)
            later = {each.id for each in self.index.events(start.timestamp())}
            kept = tuple(each for each in delivered if each in later)
            return known.model_copy(update={"since": start, "delivered": kept})

        self._change(changed)

    def _post(self, event: RequestEvent) -> bool:
        """Post an event; whether it is done with."""
        body, at = json.dumps(event.document(), separators=(",", ":")).encode(), int(time.time())
        headers = {
            "content-type": "application/json",
            "webhook-id": event.id,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(self.secret, event.id, at, body),
        }
        request = urllib.request.Request(self.url, body, headers, method="POST")  # noqa: S310 -- https, or loopback
        try:
            with self._opener.open(request, timeout=self.timeout):
                return True
        except urllib.error.HTTPError as error:
            refused = 400 <= error.code < 500 and error.code not in _AGAIN
            _LOG.warning(
                "webhook %s answers %s to event %s%s", self.id, error.code, event.id, ": left" if refused else ""
            )
            self.failures += refused
            return refused
        except (OSError, HTTPException) as error:
            _LOG.warning("webhook %s does not answer (%s)", self.id, type(error).__name__)
            return False

    def _change(self, change: Callable[[WebhookState | None], WebhookState]) -> None:
        """Change the state in the store by compare-and-swap: another server may deliver the same events."""
        name = f"webhooks/{self.id}.json"

        def changed(content: bytes | None) -> bytes | None:
            known = None
            if content is not None:
                try:
                    known = WebhookState.from_bytes(content, "state of a webhook", file=name)
                except DataError:
                    _LOG.warning("webhook %s: its state is not valid and is made again", self.id)
            self._state = change(known)
            return None if self._state == known else self._state.to_bytes()

        update(self.store, name, changed)

"""Around every request: an id, who makes it, the limits, how long it took, one line in the log.

The line has method, route, status and duration. The route is the pattern (`/requests/{request_id}`), never the path,
and nothing of headers or body is logged. The id is made here: one that a client chose could carry data into the log.
"""

import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.params.platform import ServingSettings
from mbd.serving.connections import HEALTH, Load
from mbd.serving.identity import Gatekeeper, Identity
from mbd.serving.problems import INFERENCE, answer, of_error

_CLIENTS = 10_000
_LIMITS = {408: "slow", 413: "body", 429: "rate"}
_UNREAD = {408, 413, 503}
"""statuses of answers after which the rest of a body is not read"""
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOG = logging.getLogger("mbd.serving.access")


class RateLimit:
    """A bucket of tokens for each client, which fills up at a constant rate; the longest unused are forgotten."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity, self._clock = per_minute, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, client: str) -> float:
        """Count a request; return the seconds to wait before it would be allowed, 0 if it is."""
        if not self._capacity:
            return 0.0
        with self._lock:
            at = self._clock()
            left, then = self._buckets.pop(client, (float(self._capacity), at))
            left = min(self._capacity, left + (at - then) * self._capacity / 60)
            self._buckets[client] = (left - 1 if left >= 1 else left), at
            while len(self._buckets) > _CLIENTS:
                self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) * 60 / self._capacity


class RequestContext:
    """The middleware; see the module."""

    def __init__(self, app: ASGIApp, settings: ServingSettings, gatekeeper: Gatekeeper, samples: Samples) -> None:
        self._app, self._settings, self._gatekeeper, self._samples = app, settings, gatekeeper, samples
        self._rate = RateLimit(settings.rate_per_minute)
        self._load = Load(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["request_id"] = secrets.token_hex(8)
        start, status, sent = time.perf_counter(), 500, False

        async def send_marked(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status, sent = message["status"], True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = state["request_id"]
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if status in _UNREAD:
                    headers["Connection"] = "close"
            await send(message)

        try:
            await self._limited(scope, receive, send_marked)
        except Exception as error:  # whatever it is: the client gets an id, and the server goes on
            response = of_error(scope, error)
            if not sent:
                with suppress(OSError):
                    await response(scope, receive, send_marked)
        finally:
            self._log(scope, status, time.perf_counter() - start)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request within the limits, and any other with what it exceeds."""
        address, health = (scope.get("client") or ("",))[0], scope["path"] in HEALTH
        with self._load.request(address) as place:
            if place or health:
                await self._known(scope, receive, send)
            else:
                response = answer(scope, 503, "too many requests are being answered", headers={"Retry-After": "1"})
                await response(scope, receive, send)

    async def _known(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request of a client who is known, or has none but an address."""
        scope["state"]["identity"] = identity = await self._identity(scope)
        client = f"name:{identity.name}" if identity else f"address:{(scope.get('client') or ('',))[0]}"
        inference = scope["path"].startswith(INFERENCE)  # its queue limits how much it takes on
        unlimited = inference or scope["path"] in HEALTH - {"/metrics"}
        if wait := 0.0 if unlimited else self._rate.wait(client):
            response = answer(
                scope,
                429,
                "this client has made more requests than it may",
                hint="wait as long as the header Retry-After says",
                headers={"Retry-After": str(int(wait) + 1)},
            )
            await response(scope, receive, send)
            return
        largest = self._settings.inference.request_bytes if inference else self._settings.body_bytes
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or (int(length) > largest and not inference):
            await answer(scope, 413, f"a body may have {largest} bytes")(scope, receive, send)
            return
        async with self._load.body(receive, int(length), largest) as bounded:
            await self._app(scope, bounded, send)

    async def _identity(self, scope: Scope) -> Identity | None:
        scheme, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            return None
        return await run_in_threadpool(self._gatekeeper.identity, token.strip())

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", None) or "none"
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._samples.observe(metrics.HTTP_SECONDS, seconds, method=method, route=route, status=str(status))
        if status in _LIMITS:
            self._samples.count(metrics.HTTP_LIMITED, reason=_LIMITS[status])
        fields = {
            "request_id": scope["state"]["request_id"],
            "method": method,
            "route": route,
            "status": status,
            "milliseconds": round(seconds * 1e3, 1),
        }
        _LOG.info("%s %s %s %s in %s ms", *fields.values(), extra={"fields": fields})

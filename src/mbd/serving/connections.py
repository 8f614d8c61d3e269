"""Connections: how many there may be, and how long a client may take to say what it wants.

head       a connection on which no request begins and ends its head within `HEAD_SECONDS` is closed; over TLS, the
           handshake is a part of that
number     beyond `serving.connections`, or `serving.address_connections` of one address, a new connection takes
           the place of the one that has waited longest for a head, of the address that has most
requests   beyond the same numbers, requests are answered 503; only health and metrics are not, for which
           `RESERVED` more connections are kept
bodies     must be complete within `BODY_SECONDS`; what bodies hold in memory together is bounded, and one that
           would exceed it is answered 503. The first `FREE_BYTES` of a body always have a place
"""

import asyncio
import resource
import ssl
import time
from asyncio.sslproto import SSLProtocol
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive
from uvicorn.protocols.http.h11_impl import H11Protocol

from mbd.params.platform import ServingSettings

HEAD_SECONDS = 10.0
BODY_SECONDS = 30.0
SMALL = 1 << 16
LARGE_BODIES = 4
RESERVED = 50
FILES = 256
"""files that a server may need beside its connections"""
HEALTH = frozenset({"/healthz", "/readyz", "/metrics"})


class Connections:
    """The connections of one server, no more than the system lets it open."""

    def __init__(self, settings: ServingSettings) -> None:
        allowed = _allow_files(settings.connections + RESERVED + FILES) - RESERVED - FILES
        self._most = max(1, min(settings.connections, allowed))
        self._of_address = min(settings.address_connections, self._most)
        self._waiting: OrderedDict[GuardedProtocol, float] = OrderedDict()
        """those without a request, with the time since when"""
        self._all = set[GuardedProtocol]()
        self._open = Counter[str]()
        """how many there are of each address"""

    def wait(self, connection: "GuardedProtocol") -> None:
        """Wait for the head of a request."""
        self._waiting[connection] = time.monotonic()
        self._waiting.move_to_end(connection)

    def begin(self, connection: "GuardedProtocol") -> None:
        """Count a connection as one with a request."""
        self._waiting.pop(connection, None)

    def admit(self, connection: "GuardedProtocol") -> None:
        """Take a new connection; close one that waits, or else this one, if there are too many."""
        self._all.add(connection)
        self._open[connection.address] += 1
        self.wait(connection)
        if (over := self._open[connection.address] - self._of_address) > 0:
            self._make_room(connection, over, [each for each in self._waiting if each.address == connection.address])
        elif (over := self._open.total() - self._most) > 0:
            self._make_room(connection, over, self._waiting)

    def leave(self, connection: "GuardedProtocol") -> None:
        """Forget a connection that is closed."""
        if connection not in self._all:
            return
        self._all.remove(connection)
        self._waiting.pop(connection, None)
        self._open[connection.address] -= 1
        if not self._open[connection.address]:
            del self._open[connection.address]

    def close_late(self) -> None:
        """Close what has waited for too long."""
        latest = time.monotonic() - HEAD_SECONDS
        for connection in [each for each, since in self._waiting.items() if since < latest]:
            connection.transport.abort()

    def _make_room(self, newest: "GuardedProtocol", over: int, waiting: Iterable["GuardedProtocol"]) -> None:
        """Close one of those that wait, or where the newest is the only one, that one, unless a place is reserved."""
        longest = dict[str, GuardedProtocol]()
        for connection in waiting:
            if connection is not newest:
                longest.setdefault(connection.address, connection)
        if longest:
            closed = longest[max(longest, key=self._open.__getitem__)]
            closed.transport.abort()
            self.begin(closed)
        elif over > RESERVED:
            newest.transport.abort()


class GuardedProtocol(H11Protocol):
    """A connection that is counted, and that waits for a head no longer than it may."""

    def __init__(self, connections: Connections, **of_uvicorn: Any) -> None:
        super().__init__(**of_uvicorn)
        self._connections, self.address = connections, ""

    def accept(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        self.transport = transport  # type: ignore[assignment]
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        self._connections.admit(self)

    def leave(self) -> None:
        """Forget the connection."""
        self._connections.leave(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, if that was not done before a TLS handshake."""
        if self.transport is None:
            self.accept(transport)
        super().connection_made(transport)  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.leave()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Handle what has come in; with a request, the connection does not wait any more."""
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._connections.begin(self)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        if not self.transport.is_closing():
            self._connections.wait(self)
        super().on_response_complete()


class GuardedTls(SSLProtocol):
    """A connection over TLS, which is counted from its first byte on."""

    def __init__(self, guarded: GuardedProtocol, context: ssl.SSLContext) -> None:
        no_waiter: Any = None
        super().__init__(asyncio.get_running_loop(), guarded, context, no_waiter, server_side=True)
        self._guarded = guarded

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and begin the handshake."""
        self._guarded.accept(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the connection."""
        self._guarded.leave()
        super().connection_lost(exc)


def _allow_files(needed: int) -> int:
    """Allow this process as many open files as it needs, within what the system allows; return how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return needed if soft == resource.RLIM_INFINITY else soft


class Load:
    """The requests that a server works on, and what their bodies hold in memory."""

    def __init__(self, settings: ServingSettings) -> None:
        self._most, self._of_address = settings.connections, settings.address_connections
        self._requests = Counter[str]()
        self._large = asyncio.Semaphore(LARGE_BODIES)

    @contextmanager
    def request(self, address: str) -> Iterator[bool]:
        """Within: a request of an address is worked on; whether there is a place for it."""
        place = self._requests.total() < self._most and self._requests[address] < self._of_address
        self._requests[address] += 1
        try:
            yield place
        finally:
            self._requests[address] -= 1
            if not self._requests[address]:
                del self._requests[address]

    @asynccontextmanager
    async def body(self, receive: Receive, announced: int, largest: int) -> AsyncIterator[Receive]:
        """Within: a `receive` that fails if the body is too large, comes too late, or finds no place in memory."""
        loop = asyncio.get_running_loop()
        size, held, whole, until = 0, False, False, loop.time() + BODY_SECONDS

        async def bounded() -> Message:
            nonlocal size, held, whole, until
            if whole:  # what follows is the end of the connection
                return await receive()
            if announced > largest:
                raise HTTPException(413)
            if not held and max(announced, size) > SMALL:
                async with _within(until, 503):
                    held = await self._large.acquire()
                until = loop.time() + BODY_SECONDS
            async with _within(until, 408):
                message = await receive()
            whole = not message.get("more_body", False)
            size += len(message.get("body", b""))
            if size > largest:
                raise HTTPException(413)
            return message

        try:
            yield bounded
        finally:
            if held:
                self._large.release()


@asynccontextmanager
async def _within(until: float, status: int) -> AsyncIterator[None]:
    """Within: what takes longer than until this time of the event loop is answered with a status."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError:
        again = {"Retry-After": "1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
        raise HTTPException(status, headers=again) from None

"""A proxy that injects the faults of networks and overloaded servers.

It passes HTTP through as it is, `Host` included, so that S3's signatures stay valid. Faults are put in as rules; each
says whether the server still does what was asked (its answer is lost) or never hears of it.
"""

import http.client
import random
import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class Fault(Enum):
    """A kind of fault."""

    INTERNAL_ERROR = auto()
    """the answer is 500"""
    UNAVAILABLE = auto()
    """the answer is 503"""
    NO_ANSWER = auto()
    """the connection stays open and silent"""
    RESET = auto()
    """the connection is reset"""
    STALLED_BODY = auto()
    """half of the response body arrives, then nothing"""
    TRUNCATED_BODY = auto()
    """half of the response body arrives, then the connection is closed"""
    DAMAGED_BODY = auto()
    """a bit of the response body is flipped"""
    DAMAGED_REQUEST = auto()
    """a bit of the request body is flipped"""


_BODY_FAULTS = {Fault.STALLED_BODY, Fault.TRUNCATED_BODY, Fault.DAMAGED_BODY}
_STATUS = {Fault.INTERNAL_ERROR: (500, "InternalError"), Fault.UNAVAILABLE: (503, "SlowDown")}


@dataclass
class Rule:
    """When a fault occurs."""

    fault: Fault
    times: int | None = 1
    """how often; None: always"""
    probability: float = 1.0
    request: str = ""
    """pattern that is searched in `METHOD /path?query`"""
    done: bool = False
    """whether the server processes the request before its response is lost"""


@dataclass
class FaultProxy:
    """A running proxy."""

    endpoint: str
    upstream: str
    rules: list[Rule] = field(default_factory=list)
    seen: list[tuple[str, Fault | None]] = field(default_factory=list)
    """every request as `METHOD /path?query`, and its fault"""
    ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _random: random.Random = field(default_factory=lambda: random.Random(0))

    def inject(
        self,
        fault: Fault,
        *,
        times: int | None = 1,
        probability: float = 1.0,
        request: str = "",
        done: bool = False,
    ) -> None:
        """Let a fault happen to the next requests that match."""
        with self._lock:
            self.rules.append(Rule(fault, times, probability, request, done))

    def calm(self) -> None:
        """Stop all faults, and forget the requests seen."""
        with self._lock:
            self.rules.clear()
            self.seen.clear()

    def faults(self) -> int:
        """Return how many faults have happened."""
        return sum(fault is not None for _, fault in self.seen)

    def fate(self, request: str) -> Rule | None:
        """Decide what happens to a request."""
        with self._lock:
            for rule in self.rules:
                if rule.times == 0 or not re.search(rule.request, request):
                    continue
                if self._random.random() < rule.probability:
                    if rule.times is not None:
                        rule.times -= 1
                    self.seen.append((request, rule.fault))
                    return rule
            self.seen.append((request, None))
            return None


@contextmanager
def fault_proxy(upstream: str) -> Iterator[FaultProxy]:
    """Run a proxy before the server at `upstream` (http://HOST:PORT) on a free loopback port."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.proxy = FaultProxy(f"http://127.0.0.1:{server.server_port}", upstream)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.proxy
    finally:
        server.proxy.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    proxy: FaultProxy
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: clients that give up are expected."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        rule = self.server.proxy.fate(f"{self.command} {self.path}")
        fault = rule.fault if rule else None
        if rule and fault not in _BODY_FAULTS | {Fault.DAMAGED_REQUEST}:
            if rule.done:
                self._ask(body)
            self._fail(rule.fault)
            return
        if fault is Fault.DAMAGED_REQUEST:
            body = _damaged(body)
        status, headers, content = self._ask(body)
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault is Fault.DAMAGED_BODY:
            content = _damaged(content)
        half = fault in {Fault.STALLED_BODY, Fault.TRUNCATED_BODY}
        self.wfile.write(content[: len(content) // 2] if half else content)
        if half:
            self.wfile.flush()
            if fault is Fault.STALLED_BODY:
                self.server.proxy.ended.wait(60)
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 -- as http.server wants them

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        upstream = http.client.HTTPConnection(urlsplit(self.server.proxy.upstream).netloc, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in {"expect", "connection"}:
                    upstream.putheader(name, value)
            upstream.endheaders(body or None)
            answer = upstream.getresponse()
            content = answer.read()
            left_out = {"transfer-encoding", "connection"} | ({"content-length"} if self.command != "HEAD" else set())
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in left_out]
            if self.command != "HEAD":
                headers.append(("Content-Length", str(len(content))))
            return answer.status, headers, content
        finally:
            upstream.close()

    def _fail(self, fault: Fault) -> None:
        self.close_connection = True
        if fault in _STATUS:
            status, code = _STATUS[fault]
            content = f"<Error><Code>{code}</Code><Message>so says the proxy</Message></Error>".encode()
            self.send_response_only(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
        elif fault is Fault.NO_ANSWER:
            self.server.proxy.ended.wait(60)
        else:
            with suppress(OSError):
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()


def _damaged(content: bytes) -> bytes:
    if not content:
        return content
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]

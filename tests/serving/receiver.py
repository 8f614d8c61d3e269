"""A receiver of webhooks on the loopback interface, which checks signatures as its specification says."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.http_servers import in_background

KEY = b"k" * 32
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Receiver(ThreadingHTTPServer):
    """What was received, and what to answer next."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.events: list[dict[str, Any]] = []
        self.statuses: list[int] = []
        """answers of the next requests; after them 204"""
        self.seen = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook"


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen += 1
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        if status == 204:
            self.server.events.append(self._verified(body))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _verified(self, body: bytes) -> dict[str, Any]:
        identifier, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        signed = hmac.new(KEY, f"{identifier}.{at}.".encode() + body, hashlib.sha256).digest()
        assert self.headers["webhook-signature"] == "v1," + base64.b64encode(signed).decode()
        event: dict[str, Any] = json.loads(body)
        assert event["id"] == identifier
        return event

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    with in_background(Receiver(port)) as server:
        yield server

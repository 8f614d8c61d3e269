"""Loopback servers that give a fixed answer, or none."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.http_servers import in_background


@contextmanager
def http_server(answers: Mapping[str, tuple[int, bytes]], token: str = "") -> Iterator[str]:
    """Answer `"GET /path"` with a status and a body; everything else with 404. Yields the URL.

    With a `token`, requests without it are answered with 401. The body of a redirect is where it leads.
    """

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            status, body = answers.get(f"{self.command} {self.path.partition('?')[0]}", (404, b""))
            if token and self.headers["Authorization"] != f"Bearer {token}":
                status, body = 401, b""
            self.send_response(status)
            if status == 302:
                self.send_header("Location", body.decode())
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_GET = do_HEAD = answer  # noqa: N815 -- named by the library

        def log_message(self, format: str, *args: object) -> None:
            pass

    with in_background(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


@contextmanager
def silent_server() -> Iterator[str]:
    """Take connections and never say a word. Yields the URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"

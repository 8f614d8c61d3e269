"""A bucket without versions on the loopback interface, in memory, that can be made to take no new objects."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.http_servers import in_background

BUCKET = "bucket"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_DATE = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True)
class Refusal:
    """How a server says that it takes no new objects."""

    status: int
    code: str | None
    """None: the answer has no body"""


@dataclass(frozen=True)
class _Object:
    content: bytes
    metadata: Mapping[str, str]

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.content).hexdigest()}"'


class S3Server(ThreadingHTTPServer):
    """The objects by their keys; `full` is how a write is refused, from the first key that has `fills_at` in it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, _Object] = {}
        self.full: Refusal | None = None
        self.fills_at = ""
        self.refused = 0
        self.lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if self._key:
            self._send_object()
        elif "versioning" in query:
            self._send_xml(200, "<VersioningConfiguration/>")
        elif "object-lock" in query:
            self._send_error(Refusal(404, "ObjectLockConfigurationNotFoundError"))
        else:
            self._send_list(query.get("prefix", [""])[0], query.get("start-after", [""])[0])

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        metadata = {name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}
        with self.server.lock:
            if self.server.full and self.server.fills_at in self._key:
                self.server.fills_at = ""
                self.server.refused += 1
                self._send_error(self.server.full)
                return
            found, expected = self.server.objects.get(self._key), self.headers.get("If-Match")
            etag = found.etag.strip('"') if found else None
            if (self.headers.get("If-None-Match") and found) or (expected and expected.strip('"') != etag):
                self._send_error(Refusal(412, "PreconditionFailed"))
                return
            written = self.server.objects[self._key] = _Object(content, metadata)
        self._send(200, b"", {"ETag": written.etag})

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").removeprefix("/")

    def _send_object(self) -> None:
        found = self.server.objects.get(self._key)
        if found is None:
            self._send_error(Refusal(404, "NoSuchKey"))
        else:
            self._send(200, found.content, {"ETag": found.etag, **found.metadata})

    def _send_list(self, prefix: str, after: str) -> None:
        found = sorted(
            (key, one) for key, one in list(self.server.objects.items()) if key.startswith(prefix) and key > after
        )
        rows = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(one.content)}</Size><ETag>{escape(one.etag)}</ETag>"
            f"<LastModified>{_DATE}</LastModified></Contents>"
            for key, one in found
        )
        self._send_xml(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{rows}</ListBucketResult>")

    def _send_error(self, refusal: Refusal) -> None:
        said = f"<Error><Code>{refusal.code}</Code><Message>said the server</Message></Error>" if refusal.code else ""
        self._send_xml(refusal.status, said)

    def _send_xml(self, status: int, text: str) -> None:
        self._send(status, text.encode(), {"Content-Type": "application/xml"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server."""
    with in_background(S3Server()) as server:
        yield server

"""A web server over the folder of a store, with and without TLS, on the loopback interface."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.http_servers import in_background


class Handler(SimpleHTTPRequestHandler):
    """Serves files, and misbehaves where a name asks for it."""

    asked: list[str]

    def do_GET(self) -> None:
        """Answer."""
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if self.path.endswith("/elsewhere"):
            self._redirect("https://example.org/elsewhere")
        elif self.path.endswith("/moved"):
            self._redirect(self.path.removesuffix("moved") + "object")
        elif self.path.endswith("/failing"):
            self.send_error(503)
        elif self.path.endswith("/slow"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            with _gone():
                for _ in range(1000):
                    self.wfile.write(b"x")
                    time.sleep(0.05)
        elif "/slow-" in self.path:
            head = b"HTTP/1.1 200 OK\r\n"
            start, again = {
                "head": (head + b"X: ", b"x"),
                "before-the-head": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
                "chunk": (head + b"Transfer-Encoding: chunked\r\n\r\n5;", b"x"),
                "end": (head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: x\r\n"),
            }[self.path.rpartition("/slow-")[2]]
            self.wfile.write(start)
            with _gone():
                while True:
                    self.wfile.write(again)
                    time.sleep(0.02)
        elif self.path.endswith("/endless"):
            self.send_response(200)
            self.end_headers()
            with _gone():
                while True:
                    self.wfile.write(bytes(1 << 20))
        else:
            super().do_GET()

    def _redirect(self, to: str) -> None:
        self.send_response(302)
        self.send_header("Location", to)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except OSError:
        return


class Server(ThreadingHTTPServer):
    """The server; `asked` are the paths that were asked for."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.asked: list[str] = []


@contextmanager
def serving(folder: Path, certificate: Path | None = None) -> Iterator[tuple[str, Server]]:
    """Serve a folder; with `certificate`, over TLS."""
    server = Server(folder)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with in_background(server):
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}", server


def self_signed(file: Path) -> Path:
    """Write a key and a certificate for 127.0.0.1 that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    at = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - timedelta(days=1))
        .not_valid_after(at + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(key.private_bytes(*form) + certificate.public_bytes(serialization.Encoding.PEM))
    return file

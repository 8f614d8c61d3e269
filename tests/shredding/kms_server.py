"""A small KMS with the protocol of AWS KMS for Encrypt and Decrypt, and real AES-GCM."""

import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.http_servers import in_background


class KmsServer(ThreadingHTTPServer):
    """Keys by their id."""

    daemon_threads = True

    def __init__(self, *keys: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys = {key: AESGCM(secrets.token_bytes(32)) for key in keys}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, action: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the answer; KeyError if there is no such key, InvalidTag if it did not encrypt this."""
        key, context = self.keys[asked["KeyId"]], rfc8785.dumps(asked["EncryptionContext"])
        if action == "Encrypt":
            nonce = secrets.token_bytes(12)
            sealed = nonce + key.encrypt(nonce, b64decode(asked["Plaintext"]), context)
            return {"CiphertextBlob": b64encode(sealed).decode(), "KeyId": asked["KeyId"]}
        sealed = b64decode(asked["CiphertextBlob"])
        plain = key.decrypt(sealed[:12], sealed[12:], context)
        return {"Plaintext": b64encode(plain).decode(), "KeyId": asked["KeyId"]}


class _Handler(BaseHTTPRequestHandler):
    server: KmsServer

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            status, answer = 200, self.server.answer(self.headers["X-Amz-Target"].partition(".")[2], asked)
        except KeyError:
            status, answer = 400, {"__type": "NotFoundException", "message": f"no key {asked['KeyId']}"}
        except InvalidTag:
            status, answer = 400, {"__type": "InvalidCiphertextException"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@contextmanager
def running_kms(*keys: str) -> Iterator[KmsServer]:
    with in_background(KmsServer(*keys)) as server:
        yield server

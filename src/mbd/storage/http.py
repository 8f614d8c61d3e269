"""A store read over plain HTTPS, by names, without credentials: what a web server makes of the folder of a store.

An auditor needs no account for it, and nothing but the standard library. Objects cannot be listed or written; which
ones there are follows from the log. The server is not trusted: whatever is read has a digest or a signature
by its reader. Here the reader is protected: TLS certificates are verified, redirects stay on the same host, and answers
have a time limit and a largest size. `http://` is accepted for the loopback interface only.
"""

import hashlib
import http.client
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from itertools import count
from pathlib import Path
from threading import Timer
from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlsplit

from mbd.errors import UsageError
from mbd.params.operations import StoreSettings
from mbd.storage.store import (
    CHUNK,
    LARGEST_IN_MEMORY,
    NotThereError,
    StoredObject,
    StoreError,
    check_digest,
    check_name,
    check_size,
    not_there,
    write_verified,
)
from mbd.urls import without_credentials

_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_PORTS = {"http": 80, "https": 443}
_ABSENT = {404, 410}
_AGAIN = {408, 429, 500, 502, 503, 504}
_FIRST_PAUSE = 0.2
_SLOW_SECONDS, _SLOWEST = 60.0, 1 << 14
"""the head of an answer, a part of it, and all of it may take so long; all, more if it has so many bytes each second"""


class HttpStore:
    """The objects below a URL, to read."""

    locks = False

    def __init__(self, url: str, settings: StoreSettings | None = None) -> None:
        self.url = _checked(url)
        self._settings = settings or StoreSettings()
        self._opener = urllib.request.build_opener(_SameHost(), _PromptHttp(), _PromptHttps())

    def read(self, name: str, *, sha256: str | None = None) -> bytes:
        """See :meth:`mbd.storage.store.Store.read`."""
        content, tag = self.read_tagged(name)
        check_digest(tag, sha256, name, self.url)
        return content

    def read_tagged(self, name: str) -> tuple[bytes, str]:
        """See :meth:`mbd.storage.store.Store.read_tagged`."""
        check_name(name)
        with self._answer(name) as response:
            content = b"".join(_chunks(response, LARGEST_IN_MEMORY + 1))
        check_size(len(content), self.url, name)
        return content, hashlib.sha256(content).hexdigest()

    def fetch(self, name: str, to: Path, *, sha256: str) -> None:
        """See :meth:`mbd.storage.store.Store.fetch`; not more than the server announced, and than the disk can hold."""
        check_name(name)
        with self._answer(name) as response:
            size = _length(response)
            to.parent.mkdir(parents=True, exist_ok=True)
            if size is None or size > shutil.disk_usage(to.parent).free:
                raise StoreError(
                    "the server does not say how large the object is, or it is larger than the free space",
                    file=self.url,
                    value=f"{name}, {size} bytes",
                )
            write_verified(_chunks(response), to, sha256=sha256, size=size, name=name, url=self.url)

    def pieces(self, stored: StoredObject) -> Iterator[bytes]:
        """See :meth:`mbd.storage.store.Store.pieces`."""
        check_name(stored.name)
        with self._answer(stored.name) as response:
            yield from _chunks(response)

    def stat(self, name: str) -> StoredObject | None:
        """See :meth:`mbd.storage.store.Store.stat`; the tag is the server's."""
        check_name(name)
        try:
            with self._answer(name, method="HEAD") as response:
                tag = response.headers.get("ETag", "")
                return StoredObject(name, _length(response) or 0, tag, modified=_modified(response))
        except NotThereError:
            return None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Refuse: a web server does not list objects."""
        raise StoreError(
            "a store that is read over HTTP cannot be listed",
            file=self.url,
            value=prefix or None,
            hint="name the object: URL/certificates/SHA256 or URL/latest/MODEL/MODALITY; or open the store as s3:// or "
            "file://",
        )

    versions = unfinished = list

    def _refuse_to_write(self, what: str | StoredObject | Iterable[StoredObject], *_: object, **__: object) -> NoReturn:
        """Refuse: a web server takes nothing."""
        objects = [what] if isinstance(what, str | StoredObject) else what
        raise StoreError(
            "a store that is read over HTTP cannot be written to",
            file=self.url,
            value=", ".join(each if isinstance(each, str) else each.name for each in objects),
            hint="open it as s3:// or file://",
        )

    create = replace = delete = abort = _refuse_to_write

    @contextmanager
    def _answer(self, name: str, *, method: str = "GET") -> Iterator[http.client.HTTPResponse]:
        """Ask for an object; NotThereError if there is none."""
        request = urllib.request.Request(f"{self.url}/{quote(name)}", method=method)  # noqa: S310 -- https, or loopback
        try:
            with self._opened(request) as response:
                yield response
        except urllib.error.HTTPError as error:
            if error.code not in _ABSENT:
                raise self._failed(name, f"the server answers {error.code}") from error
            raise not_there(self.url, name) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._failed(name, str(getattr(error, "reason", None) or error)) from error

    def _opened(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Ask, and ask again with growing pauses while the server or the network fails."""
        for attempt in count():
            try:
                opened: http.client.HTTPResponse = self._opener.open(request, timeout=self._settings.timeout_seconds)
                return opened
            except (OSError, http.client.HTTPException) as error:
                final = isinstance(error, _OtherHostError) or getattr(error, "code", 503) not in _AGAIN
                if final or attempt >= self._settings.retries:
                    raise
            time.sleep(_FIRST_PAUSE * 2**attempt)
        raise AssertionError  # `count` never ends

    def _failed(self, name: str, why: str) -> StoreError:
        return StoreError(
            f"the store cannot be read: {without_credentials(why)}",
            file=self.url,
            value=name,
            hint="check the URL in a browser, the network, and the server's TLS certificate",
        )


class _OtherHostError(OSError):
    """The server has named another host."""


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows redirects on one host only: another one could be inside the reader's network."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: object,
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if _origin(newurl) != _origin(req.full_url):
            raise _OtherHostError(f"the server redirects to another host, {without_credentials(newurl)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


class _PromptResponse(http.client.HTTPResponse):
    """An answer that is given up if it comes slowly: a socket's own time limit is one for each byte."""

    def __init__(self, sock: socket.socket, *arguments: Any, **more: Any) -> None:
        super().__init__(sock, *arguments, **more)
        self._socket = sock

    def begin(self) -> None:
        """Read the head."""
        with self._in_time():
            super().begin()

    def read1(self, n: int = -1) -> bytes:
        """Read a part of the body, with what stands between its chunks and at its end."""
        with self._in_time():
            return super().read1(n)

    def _end(self) -> None:
        with suppress(OSError):  # it has ended
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        start, timer = time.monotonic(), Timer(_SLOW_SECONDS, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if time.monotonic() - start >= _SLOW_SECONDS:  # and what was read may be cut off
                raise _too_slow()


class _PromptConnection(http.client.HTTPConnection):
    response_class = _PromptResponse


class _PromptTlsConnection(http.client.HTTPSConnection):
    response_class = _PromptResponse


class _PromptHttp(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PromptConnection, req)


class _PromptHttps(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PromptTlsConnection, req)


def _checked(url: str) -> str:
    """Return a URL without a slash at its end; UsageError unless it is one to read from."""
    shown = without_credentials(url)
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"this is not a URL: {error}", key="store.url", value=shown) from error
    if not host or "@" in parts.netloc or parts.query or parts.fragment or not unquote(url).isprintable():
        raise UsageError(
            "a store over HTTPS is named by a host and a path, without user, query or fragment",
            key="store.url",
            value=shown,
            hint="write https://HOST/PREFIX",
        )
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise UsageError(
            "plain http is accepted for the loopback interface only",
            key="store.url",
            value=shown,
            hint="write https://HOST/PREFIX",
        )
    return url.rstrip("/")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _length(response: http.client.HTTPResponse) -> int | None:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _modified(response: http.client.HTTPResponse) -> datetime | None:
    try:
        return parsedate_to_datetime(response.headers.get("Last-Modified", ""))
    except (TypeError, ValueError):
        return None


def _too_slow() -> StoreError:
    return StoreError("the server sends too slowly", hint="try again later, or read another copy of the store")


def _chunks(response: http.client.HTTPResponse, most: int | None = None) -> Iterator[bytes]:
    """Yield a body, up to so many bytes; a StoreError if it comes so slowly that it would hardly end."""
    start, size = time.monotonic(), 0
    while chunk := response.read1(CHUNK if most is None else min(CHUNK, most - size)):
        size += len(chunk)
        if time.monotonic() - start > _SLOW_SECONDS + size / _SLOWEST:
            raise _too_slow()
        yield chunk
    if response.length and (most is None or size < most):
        raise http.client.IncompleteRead(b"", response.length)

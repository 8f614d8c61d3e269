"""Servers of the standard library, in a thread of the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from threading import Thread
from typing import TypeVar

S = TypeVar("S", bound=BaseServer)


@contextmanager
def in_background(server: S) -> Iterator[S]:
    """Serve within. The library by itself would notice the end only after half a second."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

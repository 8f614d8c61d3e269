"""Long JSON is parsed in a process of its own: what parses it holds Python's lock, and would hold up every request.

The process is started by the first long body and ends with the server. It takes one body after the other; how many may
wait is bounded by what bodies hold in memory (:mod:`mbd.serving.connections`).
"""

import asyncio
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any

from mbd.serving.inference.protocol import InferenceError, InferenceRequest, parse_request

SHORT = 1 << 15
"""bytes of JSON that are parsed at once: some milliseconds"""


class RequestParser:
    """Parses the bodies of requests."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def parse(self, body: bytes, header_length: str | None) -> InferenceRequest:
        """Parse a body as :func:`~mbd.serving.inference.protocol.parse_request` does."""
        head = int(header_length) if header_length and header_length[:20].isdecimal() else len(body)
        if min(head, len(body)) <= SHORT:
            return parse_request(body, header_length)
        self._pool = pool = self._pool or ProcessPoolExecutor(1, get_context("spawn"), _end_with_parent)
        try:
            parsed = await asyncio.get_running_loop().run_in_executor(pool, _parse, body, header_length)
        except BrokenProcessPool:  # it was killed: the body took more memory than there is
            self._pool = None
            raise InferenceError("failed", "the request could not be parsed", hint="send binary tensors") from None
        if isinstance(parsed, InferenceRequest):
            return parsed
        raise InferenceError(**parsed)

    def stop(self) -> None:
        """End the process."""
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


def _parse(body: bytes, header_length: str | None) -> InferenceRequest | dict[str, Any]:
    try:
        return parse_request(body, header_length)
    except InferenceError as error:
        more = {"key": error.key, "hint": error.hint, "value": error.members.get("value")}
        return {"reason": error.reason, "problem": error.problem, **more}


def _end_with_parent() -> None:
    """Leave signals to the server, and end when it does, however it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(0)

    Thread(target=watch, daemon=True).start()

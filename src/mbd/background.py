"""Threads in the background: each does one thing until it is stopped, and can be woken from a pause. And processes."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from tempfile import gettempdir
from typing import Any

from mbd import tombstones

_LONGEST_FOLDER = 70
"""a fork server listens on a socket in the temporary folder, whose path may have 107 characters in all"""
_for_good = ExitStack()


class Background(ABC):
    """One thread; a subclass says in :meth:`_run` what it does. :meth:`stop` waits for it so many seconds."""

    def __init__(self, name: str, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """End its pause: something has changed."""
        self._wake.set()

    def stop(self) -> None:
        """Ask the thread to end, and wait for it."""
        self._stop.set()
        self._wake.set()
        if self.alive:
            self._thread.join(self._stop_seconds)

    @abstractmethod
    def _run(self) -> None:
        """Do the thread's work until it is stopped."""

    def _repeat(self, work: Callable[[], object], seconds: float) -> None:
        """Do something again and again, with pauses of so many seconds, which :meth:`wake` ends."""
        while not self._stop.is_set():
            self._wake.clear()
            work()
            if not self._stop.is_set():
                self._wake.wait(seconds)


@contextmanager
def process_map(processes: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """Within: a `map` over so many processes, in which purged files are refused as here; with one, Python's own."""
    if processes == 1:
        yield map
        return
    # A fork of this process would copy locks that its threads hold.
    context = get_context("forkserver" if len(gettempdir()) <= _LONGEST_FOLDER else "spawn")
    context.set_forkserver_preload(["mbd.training.lattice.networks"])  # once for all of them
    with ProcessPoolExecutor(processes, context, _start, (tombstones.listed(),)) as pool:
        yield pool.map


def _start(purged: frozenset[str]) -> None:
    _for_good.enter_context(tombstones.used(lambda: purged))

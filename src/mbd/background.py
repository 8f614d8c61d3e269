"""Threads in the background: each does one thing until it is stopped, and can be woken from a pause."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable


class Background(ABC):
    """One thread; a subclass says in :meth:`_run` what it does.

    Args:
        name: Name of the thread.
        stop_seconds: How long :meth:`stop` waits for it.

    """

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

"""Threads in the background: repeated, woken from a pause, stopped."""

import threading
import time

from mbd.background import Background

LONG = 60.0


class Counting(Background):
    """Counts how often it works."""

    def __init__(self) -> None:
        super().__init__("counting", LONG)
        self.count, self.worked = 0, threading.Semaphore(0)

    def work(self) -> None:
        self.count += 1
        self.worked.release()

    def _run(self) -> None:
        self._repeat(self.work, LONG)


def test_it_works_at_once_again_when_it_is_woken_and_no_more_when_it_is_stopped() -> None:
    counting, start = Counting(), time.monotonic()
    assert not counting.alive
    counting.start()
    assert counting.worked.acquire(timeout=LONG)
    for count in (2, 3):
        counting.wake()
        assert counting.worked.acquire(timeout=LONG)
        assert (counting.count, counting.alive) == (count, True)
    counting.stop()
    counting.wake()
    assert (counting.count, counting.alive) == (3, False)
    assert time.monotonic() - start < LONG, "neither a wake nor the stop waited for the end of a pause"


def test_what_was_never_started_can_be_stopped() -> None:
    counting = Counting()
    counting.stop()
    assert (counting.count, counting.alive) == (0, False)

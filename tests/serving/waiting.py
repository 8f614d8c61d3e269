"""Waiting for something that another thread or process does."""

import time
from collections.abc import Callable

PATIENCE = 60.0


def wait_until(ready: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)

"""Processes that die at a chosen operation of a store, and what they leave behind.

    for operation in count(1):
        if not killed_at(operation, "before", open_store, run):   # `run` gets the store, in a process of its own
            break                                                  # it has fewer operations than that: all were tried
        …                                                          # now run again, and look at what is there

Works on any store: `open_store` is called in the new process, so that connections are its own.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Literal, cast

from mbd.storage.store import Store

OPERATIONS = {"create", "replace", "read", "read_tagged", "fetch", "stat", "list", "versions", "delete"}
Moment = Literal["before", "after"]


class CountingStore:
    """A store that counts its operations."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.operations: list[str] = []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in OPERATIONS:
            return attribute

        def operation(*arguments: Any, **options: Any) -> Any:
            self.operations.append(name)
            return attribute(*arguments, **options)

        return operation


class KillingStore:
    """A store whose user is killed with SIGKILL before or after its `operation`-th use."""

    def __init__(self, store: Store, operation: int, moment: Moment) -> None:
        self._store = store
        self._left = operation
        self._moment = moment
        self._counting = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._store, name)
        if name not in OPERATIONS:
            return attribute

        def operation(*arguments: Any, **options: Any) -> Any:
            with self._counting:  # operations may be started by several threads
                self._left -= 1
                last = self._left == 0
            if last and self._moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return attribute(*arguments, **options)
            finally:  # after an operation that fails, too
                if last:
                    os.kill(os.getpid(), signal.SIGKILL)

        return operation


def killed_at(operation: int, moment: Moment, open_store: Callable[[], Store], run: Callable[[Store], object]) -> bool:
    """Run `run` in a process that is killed at an operation of its store; return whether it came that far."""

    def start() -> None:
        run(cast("Store", KillingStore(open_store(), operation, moment)))

    process = multiprocessing.get_context("fork").Process(target=start)
    process.start()
    process.join(120)
    assert process.exitcode in {0, -signal.SIGKILL}, f"the process ended with {process.exitcode}"
    return process.exitcode == -signal.SIGKILL


def side_by_side(runs: list[Callable[[], object]]) -> None:
    """Run all at the same time, each in a process of its own; all must succeed."""
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(len(runs))

    def start(run: Callable[[], object]) -> None:
        gate.wait()
        run()

    processes = [context.Process(target=start, args=(run,)) for run in runs]
    for process in processes:
        process.start()
    for process in processes:
        process.join(600)
    assert [process.exitcode for process in processes] == [0] * len(runs)

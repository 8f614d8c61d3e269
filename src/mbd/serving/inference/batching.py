"""Micro-batching: requests with the same modalities are computed together, by one thread.

    queue      bounded in rows; requests beyond are refused at once
    groups     one for each model and set of inputs; within a group in the order of arrival
    batch      up to `batch_rows` rows of the group whose first request has waited longest. It starts when the group is
               full or its first request has waited `batch_milliseconds`; meanwhile others join it

A request is checked when it comes, and again if the state of its model has changed when it is computed: it is never
answered by a release that was taken out. If a batch fails, each of its requests is computed alone, so that a request
fails by its own fault only. One thread computes, because modules of users need not be safe to run twice at once.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mbd.background import Background
from mbd.errors import MbdError
from mbd.monitoring import metrics
from mbd.monitoring.samples import Samples
from mbd.params.platform import InferenceSettings
from mbd.serving.inference.protocol import InferenceError, invalid
from mbd.serving.inference.served import ServedModels, Serving
from mbd.tensors import Array
from mbd.training.reproducibility import compute_threads

_STOP_SECONDS = 10.0
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """The outputs of a request, and the release that computed them."""

    serving: Serving
    outputs: Mapping[str, Array]


@dataclass(frozen=True)
class _Pending:
    """A request that waits."""

    serving: Serving
    """state of the model that checked it"""
    inputs: Mapping[str, Array]
    rows: int
    future: "asyncio.Future[Answer]"
    loop: asyncio.AbstractEventLoop
    since: float = field(default_factory=time.monotonic)


_Group = tuple[str, frozenset[str]]
_Result = tuple[_Pending, Answer | InferenceError]


class Batcher(Background):
    """The queue, and the thread that computes; when it is stopped, requests that wait are refused."""

    def __init__(self, models: ServedModels, settings: InferenceSettings, samples: Samples) -> None:
        super().__init__("inference", _STOP_SECONDS)
        self._models, self._settings, self._samples = models, settings, samples
        self._delay = settings.batch_milliseconds / 1000
        self._groups: dict[_Group, deque[_Pending]] = {}
        self._group_rows: dict[_Group, int] = {}
        self._rows = 0
        self._idle = False
        self._changed = threading.Condition()

    def stop(self) -> None:
        """End the thread after its batch."""
        with self._changed:
            self._stop.set()
            self._changed.notify()
        super().stop()

    def submit(self, serving: Serving, inputs: Mapping[str, Array], rows: int) -> "asyncio.Future[Answer]":
        """Put a request that `serving` has checked into the queue; called in an event loop, which gets the answer.

        Raises:
            InferenceError: The queue is full, or the server is stopping.

        """
        loop = asyncio.get_running_loop()
        pending = _Pending(serving, inputs, rows, loop.create_future(), loop)
        group = (serving.release.name, frozenset(inputs))
        with self._changed:
            if self._stop.is_set():
                raise InferenceError("unavailable", "the server is stopping")
            if self._rows and self._rows + rows > self._settings.queue_rows:
                raise InferenceError("overloaded", "too many requests wait to be computed", hint="try again later")
            self._groups.setdefault(group, deque()).append(pending)
            total = self._group_rows[group] = self._group_rows.get(group, 0) + rows
            self._count(rows)
            # A thread that waits for a group to fill up need not look at each request.
            if self._idle or total >= self._settings.batch_rows:
                self._changed.notify()
        return pending.future

    def _count(self, rows: int) -> None:
        self._rows += rows
        self._samples.set(metrics.INFERENCE_QUEUED, self._rows)

    def _run(self) -> None:
        with compute_threads(self._settings.threads):
            while batch := self._next():
                _deliver(self._compute(batch))
        stopping = InferenceError("unavailable", "the server is stopping")
        with self._changed:
            waiting = [pending for group in list(self._groups) for pending in self._take(group, whole=True)]
        _deliver([(pending, stopping) for pending in waiting])

    def _next(self) -> list[_Pending]:
        """Wait for a batch and take it out of the queue; empty: the thread has to end."""
        with self._changed:
            while not self._stop.is_set():
                group, wait = self._choose()
                if group and wait <= 0:
                    return self._take(group)
                self._idle = group is None
                self._changed.wait(wait if group else None)
                self._idle = False
        return []

    def _choose(self) -> tuple[_Group | None, float]:
        """Return the group to compute next, and how long to wait for more of it."""
        if not self._groups:
            return None, 0.0
        most = self._settings.batch_rows
        group = min(self._groups, key=lambda each: (self._group_rows[each] < most, self._groups[each][0].since))
        full = self._group_rows[group] >= most
        return group, 0.0 if full else self._groups[group][0].since + self._delay - time.monotonic()

    def _take(self, group: _Group, *, whole: bool = False) -> list[_Pending]:
        """Take a batch, or the whole group, out of the queue."""
        waiting, batch, rows = self._groups[group], list[_Pending](), 0
        while waiting and (whole or not batch or rows + waiting[0].rows <= self._settings.batch_rows):
            batch.append(waiting.popleft())
            rows += batch[-1].rows
        self._group_rows[group] -= rows
        if not waiting:
            del self._groups[group], self._group_rows[group]
        self._count(-rows)
        return batch

    def _compute(self, batch: Sequence[_Pending]) -> list[_Result]:
        name = batch[0].serving.release.name
        try:
            serving = self._models.serving(name)
        except InferenceError as error:
            return [(pending, error) for pending in batch]
        results: list[_Result] = []
        checked = []
        for pending in batch:
            try:
                if pending.serving is not serving:
                    serving.check(pending.inputs)
                checked.append(pending)
            except InferenceError as error:
                results.append((pending, error))
        return results + (self._predict(serving, checked) if checked else [])

    def _predict(self, serving: Serving, batch: Sequence[_Pending]) -> list[_Result]:
        """Compute a batch at once; if that fails, each request alone."""
        inputs = batch[0].inputs
        if len(batch) > 1:
            inputs = {name: np.concatenate([pending.inputs[name] for pending in batch]) for name in inputs}
        try:
            predictions = serving.model.predict(inputs, batch_size=self._settings.batch_rows)
        except Exception as error:  # the module is the user's code, and may raise anything
            if len(batch) > 1:
                return [result for pending in batch for result in self._predict(serving, [pending])]
            return [(batch[0], _refusal(serving.release.name, error))]
        self._samples.observe(metrics.INFERENCE_ROWS, len(predictions), model=serving.release.name)
        ends = np.cumsum([pending.rows for pending in batch])
        parts = np.split(np.asarray(predictions, np.float32), ends[:-1])
        output = serving.signature.output
        return [(pending, Answer(serving, {output: part})) for pending, part in zip(batch, parts, strict=True)]


def _refusal(name: str, error: Exception) -> InferenceError:
    if isinstance(error, MbdError):
        return invalid(error)
    _LOG.error("%s failed on a request: %s", name, type(error).__name__)  # its text may repeat the input
    return InferenceError("failed", f"{name} failed on these inputs: {type(error).__name__}")


def _deliver(results: Sequence[_Result]) -> None:
    """Hand results to the event loops that wait for them: one call for each loop."""
    for loop in {pending.loop for pending, _ in results}:
        try:
            loop.call_soon_threadsafe(_resolve, [result for result in results if result[0].loop is loop])
        except RuntimeError:  # the loop was closed, and with it everything that waited
            continue


def _resolve(results: Sequence[_Result]) -> None:
    for pending, result in results:
        if pending.future.done():  # the client is gone
            continue
        if isinstance(result, InferenceError):
            pending.future.set_exception(result)
        else:
            pending.future.set_result(result)

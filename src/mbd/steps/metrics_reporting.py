"""Metrics for Prometheus when a command has ended, successfully or not. Steps do not know about it.

    with reporting("delete", params):
        …                                    # every folder that a step writes in here is read for its metrics

Each step that wrote a folder is one group of metrics, and so is the command itself. `monitoring.mode` says where
metrics go. An error in delivering them does not fail the command: there is a warning on standard error, and metrics
that could not be pushed are written to the folder `monitoring.textfile`.
"""

import logging
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import click

from mbd.errors import ExitCode, MbdError
from mbd.monitoring import metrics
from mbd.monitoring.record_samples import read_output
from mbd.monitoring.samples import PushError, Sample, Samples, push, write_textfile
from mbd.outputs import OBSERVERS
from mbd.params import Params
from mbd.params.tree import ReaderParams
from mbd.remote_errors import retry_transient

_LOG = logging.getLogger(__name__)
REPORTED = {
    *("features", "train", "evaluate", "predict", "delete", "attack", "certify", "publish", "register", "report"),
    *("verify", "guard", "purge", "purge-scan", "shred-destroy", "request-run"),
    *("models-fetch", "certificate-fetch", "certificate-reaudit"),
}
"""the commands that report"""


class Report:
    """The metrics of one command, by step."""

    def __init__(self, command: str, params: Params | ReaderParams) -> None:
        self._command, self._settings = command, params.monitoring
        self._model = params.certificate.model
        self._steps: dict[str, Samples] = {}

    def samples(self, step: str | None = None) -> Samples:
        """Return the samples of a step; by default those of the command itself."""
        return self._steps.setdefault(step or self._command, Samples())

    def saw(self, folder: Path) -> None:
        """Take note of a folder that a step has written."""
        try:
            step, samples, reason = read_output(folder, self._model)
        except Exception as error:  # a step that is done does not fail for its metrics
            _LOG.warning("%s could not be read for metrics: %s", folder, error)
            return
        self.samples(step).update(samples)
        self.ended(step, reason)

    def ended(self, step: str, reason: str | None) -> None:
        """Take note of the end of a step, and of why it failed (None: it did not)."""
        samples, labels = self.samples(step), {"step": step, "model": self._model}
        if reason is None:
            samples.set(metrics.STEP_SUCCESS, time.time(), **labels)
        else:
            samples.set(metrics.STEP_FAILURE, time.time(), reason=reason, **labels)
        if step in self._settings.schedules:
            samples.set(metrics.STEP_SCHEDULE, self._settings.schedules[step], **labels)

    def deliver(self) -> None:
        """Deliver all metrics; a gateway that refused one group is not tried again."""
        settings, reachable = self._settings, self._settings.mode == "push"
        for step, samples in self._steps.items():
            group = {"step": step, "model": self._model}
            try:
                if reachable and (reachable := self._push(group, samples)):
                    continue
                if settings.mode == "push":
                    samples.set(metrics.UNDELIVERED, time.time(), **group)
                file = write_textfile(Path(settings.textfile), group, samples)
                if settings.mode == "push":
                    _LOG.warning("the metrics of %s were left in %s", step, file)
            except Exception as error:  # whatever it is, the command's own end counts
                _LOG.warning("the metrics of %s were not delivered: %s", step, error)

    def _push(self, group: dict[str, str], samples: Samples) -> bool:
        try:
            retry_transient(lambda: push(self._settings, group, samples))
        except PushError as error:
            _LOG.warning("%s", error)
            return False
        return True


_CURRENT: ContextVar[Report | None] = ContextVar("report", default=None)


@contextmanager
def reporting(command: str, params: Params | ReaderParams) -> Iterator[None]:
    """Run a command and report how it ended; under torchrun only the first process does."""
    if params.monitoring.mode == "none" or command not in REPORTED or int(os.environ.get("RANK", "0")) > 0:
        yield
        return
    report = Report(command, params)
    current, observers = _CURRENT.set(report), OBSERVERS.set((*OBSERVERS.get(), report.saw))
    try:
        yield
    except BaseException as error:
        report.ended(command, reason_of(error))
        raise
    else:
        report.ended(command, None)
    finally:
        OBSERVERS.reset(observers)
        _CURRENT.reset(current)
        report.deliver()


def add_samples(samples: Iterable[Sample]) -> None:
    """Add samples to the metrics of the command that runs now, if it reports."""
    if report := _CURRENT.get():
        report.samples().update(samples)


def reason_of(error: BaseException) -> str | None:
    """Return the kind of a failure, one of a few; None for an exit that is no failure."""
    if isinstance(error, KeyboardInterrupt | click.exceptions.Abort):
        return "interrupted"
    if isinstance(error, MbdError):
        return error.exit_code.name.lower()
    if isinstance(error, click.UsageError):
        return ExitCode.USAGE.name.lower()
    if isinstance(error, SystemExit | click.exceptions.Exit):
        code = error.code if isinstance(error, SystemExit) else error.exit_code
        if not code:
            return None
        if code in list(ExitCode):
            return ExitCode(int(code)).name.lower()
    return ExitCode.FAILURE.name.lower()

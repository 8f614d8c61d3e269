"""Logging: one hierarchy of loggers, `mbd.*`, written to standard error as text or as JSON lines.

Modules log with ``logging.getLogger(__name__)``; results go to standard output and never through a logger. A program
that imports `mbd` sets up logging by itself; the command line and the tasks of a pipeline call :func:`configure`.
Credentials in URLs are removed from every line, and control characters are shown. Names of subjects are never passed to
a logger. Facts that a reader of JSON lines wants as keys of their own are passed as ``extra={"fields": {…}}``.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

from mbd.urls import without_credentials, without_paths

if TYPE_CHECKING:
    from tqdm import tqdm

LogFormat = Literal["text", "json"]
_ROOT = logging.getLogger("mbd")
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""control characters but line breaks and tabs, and those that change the direction of text"""


def visible(text: str) -> str:
    """Return a text in which control characters are written as in JSON.

    Texts from files and stores are printed, too, and must not be able to rewrite what a terminal shows.
    """
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Text(logging.Formatter):
    """The message; from a warning on, the level comes first."""

    def format(self, record: logging.LogRecord) -> str:
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return visible(without_credentials(level + super().format(record)))


class _Json(logging.Formatter):
    """One JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
            **({"traceback": self.formatException(record.exc_info)} if record.exc_info else {}),
        }
        return visible(without_credentials(json.dumps(fields, ensure_ascii=False)))


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is standard error at the time, so that a redirection later on is followed."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


_HANDLER = _StandardError()
_FORMATS: dict[LogFormat, logging.Formatter] = {"text": _Text(), "json": _Json()}


def configure(level: int | None = None, form: LogFormat | None = None) -> None:
    """Write what is logged under `mbd`, from a level on, to standard error; what is not given stays as it is."""
    if _HANDLER not in _ROOT.handlers:
        _ROOT.addHandler(_HANDLER)
        _ROOT.propagate = False
    if level is not None:
        _ROOT.setLevel(level)
    if form is not None:
        _HANDLER.setFormatter(_FORMATS[form])


def serve() -> None:
    """Log as a service does: also what the HTTP server warns of, and without paths of this machine in any line."""
    if not any(isinstance(each, _WithoutPaths) for each in _HANDLER.filters):
        _HANDLER.addFilter(_WithoutPaths())
    server = logging.getLogger("uvicorn")
    server.handlers, server.propagate = [_HANDLER], False
    server.setLevel(logging.WARNING)


class _WithoutPaths(logging.Filter):
    """Removes paths from every message, and replaces a traceback by the kind of its error."""

    def filter(self, record: logging.LogRecord) -> bool:
        if "fields" not in record.__dict__:  # those messages hold a route, and nothing that a client has sent
            record.msg, record.args = without_paths(record.getMessage()), ()
        if record.exc_info and record.exc_info[0]:
            record.msg = f"{record.msg} ({record.exc_info[0].__name__})"
            record.exc_info = record.exc_text = None
        return True


def progress_bar(*, shown: bool = True, **options: Any) -> "tqdm[Any]":
    """Return a progress bar, visible only on a terminal and only where messages of level INFO are shown as text."""
    from tqdm import tqdm  # noqa: PLC0415 -- only what is used

    shown = shown and _ROOT.isEnabledFor(logging.INFO) and not isinstance(_HANDLER.formatter, _Json)
    return tqdm(**{"file": sys.stderr, **options, "disable": None if shown else True})

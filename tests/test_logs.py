"""Logging: what goes to standard error, in which format, and what never does."""

import json
import logging

import pytest
from click.testing import CliRunner

from mbd import logs
from mbd.cli import group

LOG = logging.getLogger("mbd.tests")


def log_all() -> None:
    LOG.debug("a detail")
    LOG.info("written to %s", "out")
    LOG.warning("fetched https://ann:secret@example.org/data")


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        (logging.WARNING, ["warning: fetched https://example.org/data"]),
        (logging.INFO, ["written to out", "warning: fetched https://example.org/data"]),
        (logging.DEBUG, ["a detail", "written to out", "warning: fetched https://example.org/data"]),
    ],
)
def test_text_lines_show_the_level_from_warnings_on_and_no_credentials(
    capsys: pytest.CaptureFixture[str], level: int, lines: list[str]
) -> None:
    logs.configure(level, "text")
    log_all()
    printed = capsys.readouterr()
    assert (printed.out, printed.err.splitlines()) == ("", lines)


def test_json_lines_have_time_level_logger_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(logging.INFO, "json")
    log_all()
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["time"].endswith("+00:00")
    assert (first["level"], first["logger"], first["message"]) == ("info", "mbd.tests", "written to out")
    assert second["message"] == "fetched https://example.org/data"


@pytest.mark.parametrize("arguments", [["-q", "keys", "rotate", "signer"], ["keys", "rotate", "signer", "-q"]])
def test_quiet_before_or_after_the_command_keeps_the_result(arguments: list[str]) -> None:
    assert CliRunner().invoke(group, ["keys", "new"]).exit_code == 0
    loud = CliRunner().invoke(group, ["keys", "rotate", "signer"])
    quiet = CliRunner().invoke(group, arguments)
    assert "trust file" in loud.stderr and quiet.stderr == ""
    assert "signer" in loud.stdout and "signer" in quiet.stdout


def test_a_progress_bar_is_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.configure(logging.INFO, "text")
    with logs.progress_bar(total=2) as bar:
        bar.update()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with logs.progress_bar(total=2) as bar:
        bar.update()
    assert "1/2" in capsys.readouterr().err
    for level, form in ((logging.WARNING, "text"), (logging.INFO, "json")):
        logs.configure(level, form)  # type: ignore[arg-type]
        with logs.progress_bar(total=2) as bar:
            bar.update()
        assert capsys.readouterr().err == ""

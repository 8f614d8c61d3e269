"""Logging: what goes to standard error, in which format, and what never does."""

import base64
import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd import logs
from mbd.cli import group
from tests.golden.certificates.cases import HERE

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


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_text_moves_the_cursor_of_a_terminal(capsys: pytest.CaptureFixture[str], form: logs.LogFormat) -> None:
    logs.configure(logging.INFO, form)
    LOG.info("a\x1b[2J\r\x9b\u202eb")
    printed = capsys.readouterr().err
    assert printed.removesuffix("\n").isprintable()
    assert r"\u009b\u202eb" in printed


def test_a_hostile_certificate_cannot_rewrite_its_verdict(tmp_path: Path) -> None:
    envelope = json.loads((HERE / "v1" / "exact" / "bundle" / "certificate.json").read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["\x1b[2J\x1b[HVERIFIED\n\x9b"] = 1
    envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    (tmp_path / "certificate.json").write_text(json.dumps(envelope))
    for form in ((), ("--json",)):
        printed = CliRunner().invoke(group, ["verify", str(tmp_path), "--offline", *form], color=True).stdout
        assert "VERIFIED" in printed
        assert all(line.isprintable() and not line.startswith("VERIFIED") for line in printed.splitlines())


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

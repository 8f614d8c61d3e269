"""Parameters on their way into a task, and numbers that it reports."""

import math
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from mbd import remote_errors
from mbd.errors import ExitCode, GateRefusedError, MbdError, UsageError
from mbd.kubeflow import common
from mbd.kubeflow.common import numbers, read_params, task, write_params
from mbd.params import Params, load_params, to_yaml
from mbd.remote_errors import PATIENCE
from tests.http_servers import in_background
from tests.kubeflow.workspace import PlainArtifact
from tests.refusals import refused


def test_only_what_differs_from_the_defaults_travels() -> None:
    params = load_params(None, ["deletion.epsilon=0.5", "platform.gpu.tolerations=[{key: gpu}]", "store.url=s3://b/p"])
    assert read_params(write_params(params)) == params
    assert len(write_params(params)) < 500
    assert read_params(write_params(Params())) == Params()


def test_a_setting_of_a_task_goes_on_top() -> None:
    text = write_params(load_params(None, ["training.seed=3"]))
    assert read_params(text, "training.seed=7").training.seed == 7


def test_an_image_with_other_defaults_is_refused() -> None:
    text = write_params(Params())
    with refused(UsageError, key="platform.image"):
        read_params(text.replace("{}\n", "training: {epochs: 3}\n"))


def test_a_file_written_by_hand_has_no_digest_and_is_taken_as_it_is() -> None:
    assert read_params("training: {epochs: 3}").training.epochs == 3


def test_metrics_are_finite_numbers_by_dotted_name() -> None:
    tree = {"a": {"b": 1, "c": math.nan}, "d": math.inf, "e": None, "f": True, "g": "text", "h": [1.0], "i": -0.5}
    assert numbers(tree) == {"a.b": 1.0, "i": -0.5}


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[MbdError]]:
    """The errors that the calls of a task meet, the next one last; patience for some of them."""
    monkeypatch.setenv(PATIENCE, "5")
    monkeypatch.setattr(remote_errors, "_WAITS", (0.01,))
    yield []


def away() -> MbdError:
    error = MbdError("the store cannot be reached")
    error.__cause__ = ConnectionRefusedError("refused")
    return error


def test_a_task_waits_for_a_store_that_is_away(attempts: list[MbdError]) -> None:
    attempts += [away(), away()]

    @task
    def publish() -> str:
        if attempts:
            raise attempts.pop()
        return "published"

    assert publish() == "published"


def test_a_task_does_not_wait_longer_than_its_patience(
    attempts: list[MbdError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, "0.05")
    attempts += [away() for _ in range(1000)]

    @task
    def publish() -> None:
        raise attempts.pop()

    with pytest.raises(SystemExit) as caught:
        publish()
    assert caught.value.code == ExitCode.FAILURE
    assert 900 < len(attempts) < 1000


class Gateway(BaseHTTPRequestHandler):
    """A Pushgateway that is not ready at first."""

    answers: ClassVar[list[int]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.answers.pop())
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(("patience", "not_asked"), [("5", 0), ("0", 2)])
def test_a_task_waits_for_a_pushgateway_that_is_away(
    patience: str, not_asked: int, attempts: list[MbdError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, patience)
    params, textfiles = PlainArtifact(str(tmp_path / "params.yaml")), tmp_path / "metrics"

    @task
    def register() -> None:
        with common.running(params, "register"):
            pass

    Gateway.answers = [200, 503, 503]
    with in_background(HTTPServer(("127.0.0.1", 0), Gateway)) as server:
        own = ["mode=push", f"pushgateway=http://127.0.0.1:{server.server_port}", f"textfile={textfiles}"]
        params.folder.write_text(to_yaml(load_params(None, [f"monitoring.{setting}" for setting in own])))
        register()
    assert len(Gateway.answers) == not_asked
    assert textfiles.exists() == (not_asked > 0)  # what could not be delivered


def test_a_refusal_ends_a_task_at_once_and_its_last_line_says_so(
    attempts: list[MbdError], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (message := tmp_path / "termination-log").touch()
    monkeypatch.setattr(common, "_TERMINATION_MESSAGE", message)
    attempts += [GateRefusedError("white box found audio"), GateRefusedError("white box found audio")]

    @task
    def certify() -> None:
        raise attempts.pop()

    with pytest.raises(SystemExit) as caught:
        certify()
    assert (caught.value.code, len(attempts)) == (ExitCode.REFUSED, 1)
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert last.endswith("exit code 3 (refused by the gate or the budget): white box found audio")
    assert message.read_text() == "exit code 3 (refused by the gate or the budget): white box found audio"


def test_an_unforeseen_error_ends_a_task_with_its_traceback_and_the_same_last_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    @task
    def train() -> None:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(SystemExit) as caught:
        train()
    assert caught.value.code == ExitCode.FAILURE
    log = capfd.readouterr().err.strip().splitlines()
    assert any("test_common.py" in line for line in log)
    assert log[-1].endswith("exit code 1 (failure): ZeroDivisionError('division by zero')")


def test_files_of_a_task_are_of_its_user_alone(tmp_path: Path) -> None:
    @task
    def write() -> None:
        (tmp_path / "ledger").write_text("spent")

    before = os.umask(0)
    try:
        write()
        assert os.umask(0) == 0  # as it was
    finally:
        os.umask(before)
    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o600

"""Delivery to a Pushgateway that is unreachable or refuses, and to textfiles. (Service tests push to a real one.)"""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mbd.monitoring import metrics
from mbd.monitoring.samples import PushError, Samples, push, write_textfile
from mbd.params.operations import MonitoringSettings
from tests.http_servers import in_background
from tests.integration.servers.process import free_port
from tests.monitoring.page import ExporterPage
from tests.refusals import refused

GROUP = {"step": "delete", "model": "sentiment"}


Seen = list[tuple[str, str, str | None]]


class Gateway(HTTPServer):
    """Records the requests it receives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Refusing)
        self.seen: Seen = []


class Refusing(BaseHTTPRequestHandler):
    """Answers every push with 401."""

    server: Gateway

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append((self.command, self.path, self.headers.get("Authorization")))
        self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def refusing_gateway() -> Iterator[tuple[str, Seen]]:
    with in_background(Gateway()) as server:
        yield f"http://127.0.0.1:{server.server_port}", server.seen


def success(at: float) -> Samples:
    samples = Samples()
    samples.set(metrics.STEP_SUCCESS, at, **GROUP)
    return samples


def failure(at: float, reason: str) -> Samples:
    samples = Samples()
    samples.set(metrics.STEP_FAILURE, at, reason=reason, **GROUP)
    return samples


def settings(url: str) -> MonitoringSettings:
    return MonitoringSettings(mode="push", pushgateway=url, timeout_seconds=2)


def test_an_unreachable_gateway_is_one_error_with_a_hint() -> None:
    with refused(PushError, key="monitoring.pushgateway", hint="mbd doctor"):
        push(settings(f"http://127.0.0.1:{free_port()}"), GROUP, success(1))


def test_a_group_is_pushed_by_post_with_the_credentials_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHGATEWAY_USER", "mbd")
    monkeypatch.setenv("PUSHGATEWAY_PASSWORD", "secret")
    with refusing_gateway() as (url, seen), pytest.raises(PushError, match="401"):
        push(settings(url), GROUP, success(1))
    assert seen == [("POST", "/metrics/job/mbd/model/sentiment/step/delete", "Basic bWJkOnNlY3JldA==")]


def test_the_report_of_a_failure_keeps_the_time_of_the_last_success(tmp_path: Path) -> None:
    write_textfile(tmp_path, GROUP, success(100))
    write_textfile(tmp_path, GROUP, failure(200, "refused"))
    file = write_textfile(tmp_path, GROUP, failure(300, "bad_data"))
    page = ExporterPage(file.read_text())
    assert page[metrics.STEP_SUCCESS] == {("delete", "sentiment"): 100}
    assert page[metrics.STEP_FAILURE] == {("delete", "sentiment", "bad_data"): 300}


def test_each_step_has_its_own_textfile(tmp_path: Path) -> None:
    write_textfile(tmp_path, GROUP, success(100))
    write_textfile(tmp_path, GROUP | {"step": "attack"}, success(100))
    assert {file.name for file in tmp_path.iterdir()} == {"mbd-delete-sentiment.prom", "mbd-attack-sentiment.prom"}


def test_a_textfile_that_cannot_be_read_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mbd-delete-sentiment.prom").write_bytes(b"mbd_step{ what\xff")
    file = write_textfile(tmp_path, GROUP, success(100))
    assert ExporterPage(file.read_text())[metrics.STEP_SUCCESS] == {("delete", "sentiment"): 100}

"""A Pushgateway that is away or refuses: one error with a hint. (What arrives, the service tests show.)"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mbd.monitoring import metrics
from mbd.monitoring.push import PushError, push
from mbd.monitoring.samples import Samples
from mbd.params.operations import MonitoringSettings
from tests.integration.servers.process import free_port

GROUP = {"step": "delete", "model": "sentiment"}


Seen = list[tuple[str, str, str | None]]


class Gateway(HTTPServer):
    """Keeps what it was sent."""

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
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", server.seen
        finally:
            server.shutdown()
            thread.join()


def samples() -> Samples:
    found = Samples()
    found.set(metrics.STEP_SUCCESS, 1, **GROUP)
    return found


def settings(url: str) -> MonitoringSettings:
    return MonitoringSettings(mode="push", pushgateway=url, timeout_seconds=2)


def test_a_gateway_that_is_away_is_one_error() -> None:
    with pytest.raises(PushError, match=r"did not take the metrics.*refused") as caught:
        push(settings(f"http://127.0.0.1:{free_port()}"), GROUP, samples())
    assert "mbd doctor" in str(caught.value)


def test_groups_are_added_to_by_post_with_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUSHGATEWAY_USER", "mbd")
    monkeypatch.setenv("PUSHGATEWAY_PASSWORD", "secret")
    with refusing_gateway() as (url, seen), pytest.raises(PushError, match="401"):
        push(settings(url), GROUP, samples())
    assert seen == [("POST", "/metrics/job/mbd/model/sentiment/step/delete", "Basic bWJkOnNlY3JldA==")]

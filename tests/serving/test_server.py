"""The server on a real socket: verification, events, TLS, faulty clients, and how it stops."""

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.errors import UsageError
from tests.monitoring.golden_store import GOLDEN, GoldenStore
from tests.serving.site import Site
from tests.serving.waiting import wait_until
from tests.storage.web_server import self_signed


def get(url: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def post(site: Site, url: str, document: object, role: str = "submit") -> dict[str, str]:
    headers = site.headers(role) | {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(document).encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        found: dict[str, str] = json.load(response)
        return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    site = Site.make(tmp_path_factory.mktemp("site"), "serving.poll_seconds=0.2")
    site.golden.files("surgery")
    site.golden.certificate("surgery")
    with site.process() as (url, _):
        wait_until(lambda: get(f"{url}/readyz")[0] == 200)
        yield site, url


@pytest.mark.parametrize("name", ["certificates/{digest}", "latest/sentiment/audio"])
def test_a_certificate_verifies_over_http(served: tuple[Site, str], name: str) -> None:
    site, url = served
    digest = json.loads(get(f"{url}/certificates")[1])["certificates"][0]["digest"]
    arguments = ["verify", f"{url}/store/{name.format(digest=digest)}", "--trust", str(site.golden.trust_file)]
    arguments += ["--model", str(GOLDEN / "surgery" / "model"), "--json"]
    if name.startswith("latest"):
        site.golden.store.create("latest/sentiment/audio", json.dumps(_pointer(digest)).encode())
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 0, done.output
    verdict = json.loads(done.stdout)
    assert verdict["decision"] == "verified"
    without = CliRunner().invoke(group, [*arguments[:4], "--json"])
    verdict = json.loads(without.stdout)  # weights are not served, so nothing is said about any
    assert (verdict["decision"], verdict["model"]) == ("verified", None)
    assert "no model was given" in verdict["summary"]


def _pointer(digest: str) -> dict[str, object]:
    from mbd.formats.layout import LatestPointer

    return LatestPointer(certificate=digest, index=0).to_plain()


class Listener(threading.Thread):
    """Reads a stream of events."""

    def __init__(self, site: Site, url: str, **headers: str) -> None:
        super().__init__(daemon=True)
        self.request = urllib.request.Request(f"{url}/events", headers=site.headers("read") | headers)
        self.text, self.ended = "", False
        self.start()
        wait_until(lambda: ": connected" in self.text)

    def run(self) -> None:
        with urllib.request.urlopen(self.request, timeout=60) as response:
            assert response.headers["Content-Type"].startswith("text/event-stream")
            for line in response:
                self.text += line.decode()
        self.ended = True

    @property
    def ids(self) -> list[str]:
        return re.findall(r"^id: (\S+)$", self.text, re.MULTILINE)


def test_events_are_streamed_and_a_stream_can_be_continued(served: tuple[Site, str]) -> None:
    site, url = served
    first = Listener(site, url)
    new = {"model": "sentiment", "modalities": ["audio"]}
    one = post(site, f"{url}/requests", new)["id"]
    wait_until(lambda: first.ids[-1:] == [f"{one}-0"])
    two = post(site, f"{url}/requests", new)["id"]
    post(site, f"{url}/requests/{two}/cancel", None, "operate")
    other = site.golden.request_store.submit("sentiment", ["audio"], due_days=2).id  # by another process
    wait_until(lambda: first.ids[-3:] == [f"{two}-0", f"{two}-1", f"{other}-0"])
    data = [json.loads(line[6:]) for line in first.text.splitlines() if line.startswith("data: ")]
    assert [event["state"] for event in data[-3:]] == ["received", "cancelled", "received"]
    again = Listener(site, url, **{"Last-Event-ID": f"{two}-0"})
    assert again.ids == [f"{two}-1", f"{other}-0"]


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /<script> HTTP/1.1", 404),
        (b"PUT /metrics HTTP/1.1", 405),
        (b"<script> /metrics HTTP/9.9", 400),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1", 404),
        (b"<script>", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: -1", 400),
    ],
)
def test_errors_repeat_nothing_and_name_no_version(served: tuple[Site, str], request_line: bytes, status: int) -> None:
    address = urlsplit(served[1])
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=10) as connection:
        connection.sendall(request_line + b"\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = connection.makefile("rb").read()
    assert str(status).encode() in answer.splitlines()[0]
    assert not re.search(rb"<|python|uvicorn|[0-9]+\.[0-9]+\.[0-9]+", answer, re.IGNORECASE)


def test_slow_and_half_open_connections_do_not_keep_others_from_being_served(served: tuple[Site, str]) -> None:
    _, url = served
    address = urlsplit(url)
    where = str(address.hostname), int(address.port or 0)
    idle = [socket.create_connection(where) for _ in range(100)]
    slow = [socket.create_connection(where) for _ in range(100)]
    for connection in slow:
        connection.sendall(b"POST /requests HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    start = time.monotonic()
    for _ in range(20):
        assert get(f"{url}/healthz") == (200, "ok\n")
    assert time.monotonic() - start < 5
    for connection in (*idle, *slow):
        connection.close()
    assert get(f"{url}/models")[0] == 200


def test_it_ends_streams_and_answers_requests_before_it_stops(tmp_path: Path) -> None:
    site = Site.make(tmp_path)
    with site.process() as (url, process):
        listener = Listener(site, url)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
        wait_until(lambda: listener.ended)
        lines = [json.loads(line) for line in site.log_file.read_text().splitlines()]
    (stream,) = (line for line in lines if line.get("route") == "/events")
    assert stream["status"] == 200
    assert {line["level"] for line in lines} == {"info"}


def test_it_serves_over_tls(tmp_path: Path) -> None:
    site, file = Site.make(tmp_path), self_signed(tmp_path / "tls.pem")
    with site.process("--tls-cert", str(file), "--tls-key", str(file)) as (url, _):
        assert url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(file))
        with urllib.request.urlopen(f"{url}/healthz", timeout=10, context=context) as response:
            assert response.status == 200


def exporter(golden: GoldenStore, *arguments: str) -> list[str]:
    options = ["exporter", "--store", golden.url, "--trust", str(golden.trust_file), *arguments]
    return [sys.executable, "-c", "from mbd.cli import main; main()", *options]


def test_the_exporter_serves_health_and_metrics_alone_without_torch(tmp_path: Path) -> None:
    golden = GoldenStore.open(tmp_path)
    golden.certificate()
    with subprocess.Popen(exporter(golden, "--port", "0"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        url = process.stdout.readline().split("/metrics")[0]
        wait_until(lambda: get(f"{url}/readyz")[0] == 200)
        assert get(f"{url}/healthz") == (200, "ok\n")
        assert "mbd_store_up 1.0" in get(f"{url}/metrics")[1]
        for path in ("/", "/requests", "/certificates", "/store/log/checkpoint"):
            assert get(f"{url}{path}")[0] == 404
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "torch" not in maps
        taken = urlsplit(url).port
        second = subprocess.run(exporter(golden, "--port", str(taken)), capture_output=True, text=True, check=False)
        assert (second.returncode, "cannot listen on this address" in second.stderr) == (2, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0


def test_it_is_ready_with_an_unreachable_store_so_that_prometheus_sees_it(tmp_path: Path) -> None:
    site = Site.make(tmp_path, "serving.poll_seconds=0.2")
    with site.process() as (url, _):
        (site.golden.folder / "store").rename(tmp_path / "away")
        wait_until(lambda: "mbd_store_up 0.0" in get(f"{url}/metrics")[1])
        assert get(f"{url}/readyz")[0] == get(f"{url}/healthz")[0] == 200


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--worker"], "--worker needs --features DIR"),
        (["--tls-cert", "x.pem"], "belong together"),
        (["--tls-cert", "x.pem", "--tls-key", "x.pem"], "there is no such file"),
        (["--set", "serving.webhooks=[https://x.example]"], "webhooks need a secret"),
        (["--set", "serving.webhooks=[http://x.example]"], "use https://"),
        (["--set", "serving.oidc.issuer=x"], "set issuer, audience and jwks"),
    ],
)
def test_what_cannot_work_is_a_usage_error_at_once(tmp_path: Path, arguments: list[str], problem: str) -> None:
    golden = GoldenStore.open(tmp_path)
    command = ["serve", "--store", golden.url, "--trust", str(golden.trust_file), *arguments]
    with pytest.raises((UsageError, click.UsageError), match=re.escape(problem)):
        group(command, prog_name="mbd", standalone_mode=False)

"""Beside clients that wear the server out, health and metrics answer; `benchmarks/load.py` measures how fast."""

import asyncio
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message

from mbd.params import load_params
from mbd.serving import connections
from mbd.serving.app import create_app
from mbd.serving.connections import LARGE_BODIES, SMALL, Load
from mbd.serving.inference.protocol import SHORT, InferenceError, RequestParser
from mbd.serving.server import Listening, server_of
from tests.refusals import refused
from tests.serving.site import Site
from tests.serving.slow import HALF_A_HEAD, large_body, watch
from tests.serving.waiting import wait_until
from tests.storage.web_server import self_signed


@contextmanager
def served(site: Site, listening: Listening | None = None) -> Iterator[str]:
    """Serve a site in a thread, with all limits of `mbd serve`; yield the address."""
    listening = listening or Listening()
    with listening.open() as opened:
        server = server_of(create_app(site.service()), listening)
        thread = threading.Thread(target=partial(server.run, sockets=[opened]))
        thread.start()
        try:
            wait_until(lambda: server.started)
            yield listening.url(opened)
        finally:
            server.should_exit = True
            thread.join(30)


def half_open(url: str, sent: bytes = HALF_A_HEAD) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=20)
    client.sendall(sent)
    return client


def closed(client: socket.socket) -> bool:
    try:
        return client.recv(1000) == b""
    except ConnectionResetError:
        return True


def test_beside_more_than_a_thousand_half_open_connections_health_and_metrics_answer(tmp_path: Path) -> None:
    with served(Site.make(tmp_path)) as url:
        clients = [half_open(url) for _ in range(1010)]
        for path in ("/healthz", "/metrics"):
            assert set(watch(url + path, 0.3)[1]) == {"200"}
        for client in clients:
            client.close()


def test_a_new_connection_takes_the_place_of_the_one_that_has_waited_longest(tmp_path: Path) -> None:
    with served(Site.make(tmp_path, "serving.connections=20", "serving.address_connections=10")) as url:
        clients = [half_open(url) for _ in range(10)]
        assert set(watch(f"{url}/healthz", 0.2)[1]) == {"200"}
        assert closed(clients[0])
        clients[-1].sendall(b"\r\n\r\n")
        assert clients[-1].recv(15) == b"HTTP/1.1 200 OK"
        for client in clients:
            client.close()


def test_a_server_with_fewer_files_than_connections_keeps_to_its_files(tmp_path: Path) -> None:
    with Site.make(tmp_path).process(files=700) as (url, _):
        clients = [half_open(url) for _ in range(800)]
        times, answers = watch(f"{url}/healthz", 0.5)
        assert set(answers) == {"200"}
        assert max(times) < connections.HEAD_SECONDS / 2
        for client in clients:
            client.close()


def test_over_tls_a_handshake_that_does_not_begin_takes_a_place_and_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, context = self_signed(tmp_path / "tls.pem"), ssl._create_unverified_context()
    site = Site.make(tmp_path, "serving.connections=20", "serving.address_connections=10")
    with served(site, Listening(certificate=file, key=file)) as url:
        clients = [half_open(url, b"") for _ in range(10)]
        with urllib.request.urlopen(f"{url}/healthz", timeout=10, context=context) as answer:
            assert answer.status == 200
        assert closed(clients[0])
        monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
        assert closed(clients[-1])
        for client in clients:
            client.close()


def test_a_head_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with served(Site.make(tmp_path)) as url, half_open(url) as client:
        assert closed(client)


def test_a_body_that_does_not_end_is_answered_and_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.3)
    site = Site.make(tmp_path)
    token = f"Authorization: Bearer {site.tokens['submit']}\r\n"
    with served(site) as url, socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 20) as client:
        head = "POST /requests HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        client.sendall(f"{head}{token}Content-Length: 100\r\n\r\n{{".encode())
        reply = b"".join(iter(lambda: client.recv(4096), b""))
        assert reply.startswith(b"HTTP/1.1 408")
        assert b"connection: close" in reply.lower()


def test_so_many_large_bodies_are_read_at_a_time_and_small_ones_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "BODY_SECONDS", 0.2)
    load, end = Load(load_params(None, []).serving), asyncio.Event()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def read(announced: int) -> str:
        async with load.body(receive, announced, 10 * SMALL) as bounded:
            try:
                await bounded()
            except HTTPException as error:
                return str(error.status_code)
            await end.wait()
            return "read"

    async def run() -> list[str]:
        tasks = [asyncio.create_task(read(SMALL + 1)) for _ in range(LARGE_BODIES + 2)]
        tasks.append(asyncio.create_task(read(SMALL)))
        await asyncio.sleep(0.5)
        assert sum(task.done() for task in tasks) == 2
        end.set()
        return await asyncio.gather(*tasks)

    assert sorted(asyncio.run(run())) == ["503", "503", *["read"] * (LARGE_BODIES + 1)]


def test_while_a_large_body_is_parsed_the_server_goes_on_and_its_refusal_comes_back() -> None:
    parser, turns = RequestParser(), 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.002)
            turns += 1

    async def run() -> None:
        nonlocal turns
        mismatch = refused(InferenceError, match="the shape", key="text")
        with mismatch:
            await parser.parse(large_body(SHORT + 100), None)
        other, turns = asyncio.create_task(turn()), 0
        with mismatch:
            await parser.parse(large_body(4_000_000), None)
        other.cancel()

    try:
        asyncio.run(run())
    finally:
        parser.stop()
    assert turns > 5

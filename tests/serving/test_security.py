"""No role can do more than it may, and no token, subject or path is in any log line or answer."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from mbd import logs
from mbd.formats.access import ROLES
from tests.serving.site import Site, SiteClient

ALLOWED: dict[tuple[str, str], set[str]] = {
    ("POST", "/requests"): {"submit"},
    ("GET", "/requests"): {"read"},
    ("GET", "/requests/{request_id}"): {"read", "submit"},
    ("POST", "/requests/{request_id}/cancel"): {"operate"},
    ("GET", "/events"): {"read"},
    ("GET", "/webhooks"): {"operate"},
    ("POST", "/webhooks/replay"): {"operate"},
    ("GET", "/metrics"): {"read"},
    ("GET", "/certificates"): {"read"},
    ("GET", "/certificates/{digest}"): {"read"},
    ("GET", "/certificates/{digest}/page"): {"read"},
    ("GET", "/models"): {"read"},
    ("GET", "/models/{name}"): {"read"},
    ("GET", "/store/{name}"): {"read"},
    ("GET", "/overview"): {"read"},
    ("GET", "/session"): {"read", "submit", "operate"},
}
"""which roles may use a route, where nothing is public"""
OPEN = {("GET", "/healthz"), ("GET", "/readyz")}


@pytest.fixture
def closed(site: Site) -> Iterator[SiteClient]:
    site.golden.certificate("surgery")
    site.settings.append("serving.public=[]")
    with site.client() as client:
        yield client


def operations(client: SiteClient) -> set[tuple[str, str]]:
    paths = client.http.get("/openapi.json").json()["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_every_route_has_its_roles(closed: SiteClient) -> None:
    assert operations(closed) == ALLOWED.keys() | OPEN


@pytest.mark.parametrize("operation", sorted(ALLOWED), ids=" ".join)
def test_a_route_needs_one_of_its_roles(closed: SiteClient, operation: tuple[str, str]) -> None:
    method, path = operation
    identifier, digest = closed.submit().json()["id"], next(iter(closed.service.history.certificates))
    closed.service.stopping.set()  # so that the stream of events ends at once
    address = path.format(request_id=identifier, digest=digest, name="sentiment")
    if path.startswith("/store"):
        address = "/store/log/checkpoint"
    bodies = {
        "/requests": {"model": "sentiment", "modalities": ["text"]},
        "/webhooks/replay": {"since": "2026-01-01T00:00:00Z"},
    }

    def status(headers: dict[str, str]) -> int:
        body = bodies.get(path) if method == "POST" else None
        return int(closed.http.request(method, address, json=body, headers=headers).status_code)

    for role in ROLES:
        expected = {200, 201, 202} if role in ALLOWED[operation] else {403}
        assert status(closed.site.headers(role)) in expected, role
    token = closed.site.tokens["operate"]
    for wrong in (
        {},
        {"Authorization": "Bearer "},
        {"Authorization": f"Basic {token}"},
        {"Authorization": f"Bearer {token[:-1]}"},
        {"Authorization": f"Bearer {token}x"},
        {"Authorization": "Bearer mbd_" + "0" * 12 + "_x"},
        {"Authorization": "Bearer a.b.c"},
        {"Authorization": "Bearer " + "x" * 10_000},
        {"X-Token": token},
        {"Cookie": f"token={token}"},
    ):
        assert status(wrong) == 401, wrong


def test_refused_requests_change_nothing(closed: SiteClient) -> None:
    identifier = closed.submit().json()["id"]
    closed.post(f"/requests/{identifier}/cancel", role="submit")
    closed.post(f"/requests/{identifier}/cancel", role="read")
    closed.post("/requests", {"model": "sentiment", "modalities": ["text"]}, role="read")
    closed.post("/requests", {"model": "sentiment", "modalities": ["text"]}, role="operate")
    assert [(one.id, one.state) for one in closed.site.golden.request_store.all()] == [(identifier, "received")]


def hostile(client: SiteClient, secrets: dict[str, str]) -> Iterator[Any]:
    """Send secrets in every part of requests, and make the server fail in several ways."""
    subject, path, token = secrets["subject"], secrets["path"], secrets["token"]
    headers = client.site.headers("submit") | {"X-Request-Id": subject, "User-Agent": token, "Referer": path}
    for body in (
        {"model": subject, "modalities": ["audio"]},
        {"model": "sentiment", "modalities": [subject]},
        {"model": "sentiment", "modalities": ["audio"], "reason": f"{subject}@x", "requester": path},
        {"model": "sentiment", "modalities": ["audio"], subject: token},
        {"model": path, "modalities": path},
        [subject, token],
        subject,
    ):
        yield client.http.post("/requests", json=body, headers=headers)
    yield client.http.post("/requests", content=f'{{"{subject}": {path}'.encode(), headers=headers)
    yield client.http.post("/requests", json={}, headers=headers | {"Idempotency-Key": f"{subject} ü".encode().hex()})
    for address in (
        f"/{subject}",
        f"/requests/{subject}",
        f"/models/{subject}",
        f"/store{path}",
        f"/store/log/{subject}",
    ):
        yield client.get(address, "read")
        yield client.http.get(address, headers={"Authorization": f"Bearer {token}x"})
    yield client.get("/requests", "read", params={"after": subject, "model": token, "state": path})
    yield client.http.request("DELETE", f"/requests/{subject}", headers=headers)
    folder = client.site.golden.folder
    (folder / "store").rename(folder / "away")
    (folder / "store").write_text("not a folder")
    client.rescan()
    yield client.submit()
    yield client.get("/store/log/checkpoint")
    yield client.get(f"/requests/{'0' * 16}")
    client.service.index.page = None  # type: ignore[method-assign, assignment]
    yield client.get("/requests")


def test_no_token_subject_or_path_is_in_any_log_line_or_answer(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.golden.certificate("surgery")
    site.settings.append("serving.public=[]")
    logs.configure(logging.DEBUG, "json")
    logs.serve()
    secrets = {"subject": "subject-0815", "path": "/etc/mbd/where", "token": site.tokens["submit"]}
    hidden = {*secrets.values(), *site.tokens.values(), str(site.golden.folder), "site-packages", "Traceback"}
    hidden |= {one.sha256 for one in site.token_file.tokens}
    with site.client() as client:
        answers = list(hostile(client, secrets))
    lines = capsys.readouterr().err
    assert {answer.status_code for answer in answers} >= {401, 404, 405, 422, 500, 503}
    for answer in answers:
        whole = answer.text + json.dumps(dict(answer.headers))
        assert not [one for one in hidden if one in whole], whole
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["X-Request-Id"] in lines
    assert not [one for one in hidden if one in lines]
    assert all(json.loads(line) for line in lines.splitlines())
    assert "AttributeError" in lines or "TypeError" in lines


def test_there_is_no_cross_origin_access_and_the_page_loads_nothing_from_elsewhere(client: SiteClient) -> None:
    answer = client.get("/models", None, headers={"Origin": "https://elsewhere.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    preflight = client.http.options("/requests", headers={"Origin": "https://elsewhere.example"})
    assert preflight.status_code == 405
    page = client.get("/", None)
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert "server" not in page.headers

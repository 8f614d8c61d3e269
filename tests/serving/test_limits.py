"""Limits of rate and size, and the line that every request leaves in the log."""

import logging
from collections.abc import Iterator

import pytest

from mbd.serving.middleware import RateLimit
from tests.serving.site import Site, SiteClient


def test_a_client_may_make_so_many_requests_and_then_has_to_wait(site: Site) -> None:
    site.settings.append("serving.rate_per_minute=5")
    with site.client() as client:
        statuses = [client.get("/requests").status_code for _ in range(7)]
        assert statuses == [200] * 5 + [429] * 2
        refused = client.get("/requests")
        assert 1 <= int(refused.headers["Retry-After"]) <= 13
        assert client.get("/requests", "operate").status_code == 403  # another client
        assert 'mbd_http_refused_requests_total{reason="rate"} 3.0' in client.get("/metrics", None).text


def test_a_bucket_fills_up_with_time() -> None:
    at = 0.0
    limit = RateLimit(60, lambda: at)
    assert [limit.wait("a") for _ in range(60)] == [0.0] * 60
    assert limit.wait("a") == pytest.approx(1.0)
    assert limit.wait("b") == 0.0
    at += 1.0
    assert (limit.wait("a"), limit.wait("a") > 0) == (0.0, True)
    at += 3600
    assert [limit.wait("a") for _ in range(61)][-2:] == [0.0, pytest.approx(1.0)]


def test_the_memory_of_clients_is_bounded() -> None:
    limit = RateLimit(60)
    for number in range(12_000):
        limit.wait(str(number))
    assert len(limit._buckets) == 10_000


def test_without_a_limit_nothing_is_refused() -> None:
    limit = RateLimit(0)
    assert not any(limit.wait("a") for _ in range(5000))


def test_a_body_that_is_too_large_is_refused_announced_or_not(client: SiteClient) -> None:
    headers, largest = client.site.headers("submit"), client.service.params.serving.body_bytes
    announced = client.http.post("/requests", content=b"x" * (largest + 1), headers=headers)
    assert announced.status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(largest // 1024 + 2):
            yield b"x" * 1024

    streamed = client.http.post("/requests", content=pieces(), headers=headers)
    assert (streamed.status_code, streamed.headers["content-type"]) == (413, "application/problem+json")
    assert client.submit().status_code == 201
    assert 'mbd_http_refused_requests_total{reason="body"} 2.0' in client.get("/metrics", None).text


def test_a_request_leaves_one_line_with_its_id_and_its_route(
    client: SiteClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mbd.serving.access")
    answer = client.get(f"/requests/{'0' * 16}")
    (record,) = (one for one in caplog.records if one.name == "mbd.serving.access")
    fields = record.__dict__["fields"]
    assert fields["request_id"] == answer.headers["X-Request-Id"]
    assert (fields["method"], fields["route"], fields["status"]) == ("GET", "/requests/{request_id}", 404)
    assert "0" * 16 not in record.getMessage()


def test_durations_are_counted_by_route(client: SiteClient) -> None:
    client.get("/models", None)
    client.get("/nothing-of-that-name", None)
    page = client.get("/metrics", None).text
    count = "mbd_http_request_duration_seconds_count"
    assert f'{count}{{method="GET",route="/models",status="200"}} 1.0' in page
    assert f'{count}{{method="GET",route="none",status="404"}} 1.0' in page
    assert "nothing-of-that-name" not in page

"""The index of requests: what was written here is not lost by a scan that began before, and no event comes twice."""

import time
from pathlib import Path

import pytest

from mbd.serving.request_index import RequestEvent, RequestIndex
from tests.monitoring.golden_store import GoldenStore


@pytest.fixture
def golden(tmp_path: Path) -> GoldenStore:
    return GoldenStore.open(tmp_path)


def listed(index: RequestIndex) -> list[str]:
    return [facts.id for facts in index.page(lambda _: True, 10, None)[0]]


def test_a_scan_that_began_before_a_request_was_written_does_not_lose_it(golden: GoldenStore) -> None:
    index, seen = RequestIndex(), list[RequestEvent]()
    end = index.subscribe(seen.extend)
    index.scanned(golden.scanner().scan(), time.monotonic())
    began, old = time.monotonic(), golden.scanner().scan()
    request = golden.request_store.submit("sentiment", ["audio"], due_days=3)
    index.written(request)
    index.scanned(old, began)
    assert listed(index) == [request.id]
    index.scanned(golden.scanner().scan(), time.monotonic())
    assert [event.id for event in seen] == [f"{request.id}-0"]
    began, old = time.monotonic(), golden.scanner().scan()
    index.written(golden.request_store.cancel(request.id))
    index.scanned(old, began)
    index.scanned(golden.scanner().scan(), time.monotonic())
    assert [event.state for event in seen] == ["received", "cancelled"]
    end()
    index.written(golden.request_store.submit("sentiment", ["audio"], due_days=3))
    assert len(seen) == 2


def test_a_request_that_was_removed_from_the_store_is_gone_with_the_next_scan(golden: GoldenStore) -> None:
    index = RequestIndex()
    request = golden.request_store.submit("sentiment", ["audio"], due_days=3)
    index.written(request)
    golden.private.delete(list(golden.private.list("requests/")))
    index.scanned(golden.scanner().scan(), time.monotonic())
    assert listed(index) == []


def test_missed_events_are_those_after_the_last_seen(golden: GoldenStore) -> None:
    index = RequestIndex()
    index.scanned(golden.scanner().scan(), time.monotonic())
    ids = []
    for days in (3, 2, 1):
        request = golden.request_store.submit("sentiment", ["audio"], due_days=days)
        index.written(request)
        ids.append(f"{request.id}-0")
    assert [event.id for event in index.missed(ids[0])] == ids[1:]
    assert index.missed("nothing") == []

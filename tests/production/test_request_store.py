"""The requests in a store: created once, changed by one writer at a time."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mbd.errors import DataError, UsageError
from mbd.formats.request import DeletionRequest, Lease, request_name
from mbd.production.request_store import RequestStore
from mbd.storage.folder import FolderStore
from mbd.storage.store import NotThereError
from mbd.trust.commitments import RequestKey
from tests.refusals import refused

KEY = RequestKey(bytes(32))
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def request_store(tmp_path: Path) -> RequestStore:
    return RequestStore(FolderStore(tmp_path / "store"), KEY, clock=lambda: START)


def submitted(request_store: RequestStore, token: str | None = None, **more: str) -> DeletionRequest:
    return request_store.submit("sentiment", ["audio"], due_days=30, token=token, **more)


def test_a_request_is_due_after_the_given_days(request_store: RequestStore) -> None:
    request = submitted(request_store, reason="withdrawn consent", requester="case-17")
    assert (request.state, request.due) == ("received", START + timedelta(days=30))
    assert request_store.get(request.id) == request
    assert [event.state for event in request.history] == ["received"]


def test_the_same_token_again_creates_nothing(request_store: RequestStore) -> None:
    first = submitted(request_store, token="t-1")
    later = RequestStore(request_store.store, KEY, clock=lambda: START + timedelta(days=1))
    assert submitted(later, token="t-1") == first
    assert len(list(request_store.all())) == 1
    with refused(UsageError, key="--token"):
        request_store.submit("sentiment", ["visual"], due_days=30, token="t-1")


def test_sixteen_submissions_with_one_token_are_one_request(request_store: RequestStore) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = {request.id for request in pool.map(lambda _: submitted(request_store, token="t"), range(16))}
    assert len(found) == 1
    assert len(list(request_store.all())) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"requester": "ann@example.org"}, "e-mail address"),
        ({"reason": "line\nbreak"}, "not printed, such as line breaks"),
        ({"requester": "x" * 101}, "100"),
    ],
)
def test_personal_data_and_long_texts_are_refused(
    request_store: RequestStore, change: dict[str, str], problem: str
) -> None:
    with pytest.raises(UsageError, match=problem):
        submitted(request_store, **change)


def test_an_invalid_model_name_and_empty_modalities_are_refused(request_store: RequestStore) -> None:
    with refused(UsageError, key="model"):
        request_store.submit("../elsewhere", ["audio"], due_days=30)
    with refused(UsageError, key="modalities"):
        request_store.submit("sentiment", [], due_days=30)


def test_a_request_that_has_not_started_can_be_cancelled(request_store: RequestStore) -> None:
    request = submitted(request_store)
    assert request_store.cancel(request.id).state == "cancelled"
    with refused(UsageError, key="ID", value=request.id):
        request_store.cancel(request.id)
    with refused(NotThereError, key="ID", value="0" * 16):
        request_store.get("0" * 16)


def test_only_open_requests_can_be_claimed(request_store: RequestStore) -> None:
    request = submitted(request_store)
    lease = Lease(worker="w", until=START + timedelta(hours=1), batch="b" * 16)
    taken = request_store.claim(request, lease)
    assert taken is not None
    assert (taken.state, taken.lease) == ("running", lease)
    with refused(UsageError, key="ID", value=request.id):
        request_store.cancel(request.id)
    request_store.change(request.id, lambda found: found.moved("certified", "w", START, certificate="c"))
    assert request_store.claim(request, lease) is None


def test_the_nearest_deadline_comes_first(request_store: RequestStore) -> None:
    late = request_store.submit("sentiment", ["audio"], due_days=30)
    soon = request_store.submit("sentiment", ["audio"], due_days=3)
    assert [request.id for request in request_store.open_requests()] == [soon.id, late.id]


def test_concurrent_changes_are_all_kept(request_store: RequestStore) -> None:
    request = submitted(request_store)

    def note(number: int) -> None:
        request_store.change(request.id, lambda found: found.moved("received", str(number), START))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, range(24)))
    assert {event.by for event in request_store.get(request.id).history} == {"submit", *map(str, range(24))}


def test_one_bad_object_is_reported_and_does_not_hide_the_other_requests(
    request_store: RequestStore, caplog: pytest.LogCaptureFixture
) -> None:
    request = submitted(request_store)
    bad = {
        "requests/0000000000000000.json": b"not JSON",
        "requests/1111111111111111.json": b'{"format": "urn:missing-by-design:request:v1"}',
        "requests/2222222222222222.json": request.to_bytes(),  # a copy under another id
        "requests/deeper/object": b"",
    }
    for name, content in bad.items():
        request_store.store.create(name, content)
    assert list(request_store.all()) == [request]
    assert request_store.open_requests() == [request]
    assert all(name in caplog.text for name in bad)
    with pytest.raises(DataError, match="the request is not valid"):
        request_store.get("0" * 16)


# Who has written a request


def planted(request_store: RequestStore, request: DeletionRequest, **changes: object) -> None:
    """Write an object as somebody can who holds no key: over the one that is there, or a new one."""
    forged = request.model_copy(update=changes)
    store, name = request_store.store, request_name(forged.id)
    there = store.read_tagged(name)[1] if store.stat(name) else None
    store.replace(name, forged.to_bytes(), expected=there)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "cancelled"},
        {"state": "refused"},
        {"id": "0" * 16, "received": datetime(2019, 1, 1, tzinfo=UTC)},
        {"modalities": ("text",)},
        {"mac": None},
        {"mac": "0" * 64},
    ],
)
def test_a_request_that_was_written_without_the_key_counts_for_nothing(
    request_store: RequestStore, caplog: pytest.LogCaptureFixture, changes: dict[str, object]
) -> None:
    honest = submitted(request_store)
    planted(request_store, honest, **changes)
    forged = next(each for each in request_store.stated() if each.id == changes.get("id", honest.id))
    assert not request_store.is_authentic(forged)
    assert forged not in request_store.all()
    assert f"request {forged.id} is not authentic" in caplog.text
    for use in (request_store.cancel, lambda identifier: request_store.change(identifier, lambda request: request)):
        with refused(DataError, match="not authentic", file=request_name(forged.id)):
            use(forged.id)


def test_every_change_of_a_request_is_authentic(request_store: RequestStore) -> None:
    request = submitted(request_store)
    cancelled = request_store.cancel(request.id)
    assert request_store.is_authentic(request)
    assert request_store.is_authentic(cancelled)
    assert request.mac != cancelled.mac
    another = RequestStore(request_store.store, RequestKey(b"1" * 32))
    assert list(another.all()) == []


def test_without_the_key_requests_are_read_and_none_is_entered_or_changed(request_store: RequestStore) -> None:
    request = submitted(request_store)
    reader = RequestStore(request_store.store, None)
    assert list(reader.all()) == [request]
    with refused(UsageError, key="certificate.lineage_key"):
        submitted(reader)
    with refused(UsageError, key="certificate.lineage_key"):
        reader.cancel(request.id)

"""The book of requests: entered once, changed by one hand at a time."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mbd.errors import UsageError
from mbd.requests.book import Book
from mbd.requests.record import Lease, Request
from mbd.storage.folder import FolderStore
from mbd.storage.store import NotThereError

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(FolderStore(tmp_path / "store"), clock=lambda: START)


def submitted(book: Book, token: str | None = None, **more: str) -> Request:
    return book.submit("sentiment", ["audio"], due_days=30, token=token, **more)


def test_a_request_is_due_after_so_many_days(book: Book) -> None:
    request = submitted(book, reason="withdrawn consent", requester="case-17")
    assert (request.state, request.due) == ("received", START + timedelta(days=30))
    assert book.get(request.id) == request
    assert [event.state for event in request.history] == ["received"]


def test_the_same_token_again_enters_nothing(book: Book) -> None:
    first = submitted(book, token="t-1")
    later = Book(book.store, clock=lambda: START + timedelta(days=1))
    assert submitted(later, token="t-1") == first
    assert len(list(book.all())) == 1
    with pytest.raises(UsageError, match="belongs to another request"):
        book.submit("sentiment", ["visual"], due_days=30, token="t-1")


def test_sixteen_submissions_with_one_token_are_one_request(book: Book) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = {request.id for request in pool.map(lambda _: submitted(book, token="t"), range(16))}
    assert len(found) == 1
    assert len(list(book.all())) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"requester": "ann@example.org"}, "e-mail address"),
        ({"reason": "line\nbreak"}, "pattern"),
        ({"requester": "x" * 101}, "100"),
    ],
)
def test_personal_data_and_novels_are_no_requests(book: Book, change: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        submitted(book, **change)


def test_a_model_needs_a_name_that_can_be_a_name(book: Book) -> None:
    with pytest.raises(UsageError, match="this is no request"):
        book.submit("../elsewhere", ["audio"], due_days=30)
    with pytest.raises(UsageError, match="this is no request"):
        book.submit("sentiment", [], due_days=30)


def test_what_nobody_has_begun_can_be_cancelled(book: Book) -> None:
    request = submitted(book)
    assert book.cancel(request.id).state == "cancelled"
    with pytest.raises(UsageError, match="is cancelled and can no longer"):
        book.cancel(request.id)
    with pytest.raises(NotThereError, match="no such request"):
        book.get("0" * 16)


def test_only_what_is_owed_can_be_claimed(book: Book) -> None:
    request = submitted(book)
    lease = Lease(worker="w", until=START + timedelta(hours=1), batch="b")
    taken = book.claim(request, lease)
    assert taken is not None
    assert (taken.state, taken.lease) == ("running", lease)
    with pytest.raises(UsageError, match="is running and can no longer"):
        book.cancel(request.id)
    book.change(request.id, lambda found: found.moved("certified", "w", START, certificate="c"))
    assert book.claim(request, lease) is None


def test_the_nearest_deadline_comes_first(book: Book) -> None:
    late = book.submit("sentiment", ["audio"], due_days=30)
    soon = book.submit("sentiment", ["audio"], due_days=3)
    assert [request.id for request in book.owed()] == [soon.id, late.id]


def test_changes_of_many_hands_are_all_kept(book: Book) -> None:
    request = submitted(book)

    def note(number: int) -> None:
        book.change(request.id, lambda found: found.moved("received", str(number), START))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(note, range(24)))
    assert {event.by for event in book.get(request.id).history} == {"submit", *map(str, range(24))}

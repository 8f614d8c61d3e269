"""What the console opens with: the session, and everything in numbers."""

from datetime import UTC, datetime, timedelta

from mbd.formats.request import State
from mbd.monitoring.store_scanner import RequestFacts
from mbd.serving.routes.overview import DAYS, count_requests
from tests.serving.site import Site, SiteClient

NOW = datetime(2026, 6, 30, 12, tzinfo=UTC)


def request(
    received_days_ago: float, state: State, ended_days_ago: float | None = None, due_in: float = 30
) -> RequestFacts:
    received = (NOW - timedelta(days=received_days_ago)).timestamp()
    ends = () if ended_days_ago is None else ((state, (NOW - timedelta(days=ended_days_ago)).timestamp()),)
    due = received + due_in * 86400
    return RequestFacts(
        id="0" * 16, model="m", modalities=("audio",), state=state, received=received, due=due, certificate=None,
        events=(("received", received), *ends),
    )  # fmt: skip


def test_each_day_says_what_came_what_was_certified_what_is_open_and_what_is_late() -> None:
    requests = [
        request(200, "certified", 150),  # before these days
        request(100, "certified", 10),  # open for most of them, and late from 30 days after its receipt
        request(2, "received"),
        request(1, "running", 0.5, due_in=2),
        request(40, "failed", 39),
    ]
    found = count_requests(requests, NOW)
    assert [found.days[0].day, found.days[-1].day] == [NOW.date() - timedelta(days=DAYS - 1), NOW.date()]
    by_age = list(reversed(found.days))
    assert [(one.open, one.overdue) for one in by_age[:3]] == [(3, 1), (3, 1), (2, 1)]
    assert [(by_age[ago].open, by_age[ago].overdue) for ago in (10, 11, 60, 89)] == [(1, 1), (2, 1), (1, 1), (1, 0)]
    assert {ago for ago, one in enumerate(by_age) if one.certified} == {10}
    assert {ago for ago, one in enumerate(by_age) if one.received} == {1, 2, 40}
    assert (found.overdue, found.due_soon, found.median_hours) == (1, 1, 90 * 24)
    assert found.states == {"certified": 2, "received": 1, "running": 1, "failed": 1}


def test_a_request_is_not_late_on_its_last_day_before_the_hour() -> None:
    (today,) = count_requests([request(1, "received", due_in=1.2)], NOW).days[-1:]
    assert (today.open, today.overdue) == (1, 0)
    assert count_requests([], NOW).median_hours is None


def test_the_overview_has_requests_for_readers_alone(site: Site) -> None:
    first = site.golden.certificate("exact")
    second = site.golden.certificate("surgery", days=5, supersedes=first)
    site.golden.audit(second, days=100)
    with site.client() as client:
        client.submit()
        found = client.get("/overview").json()
        assert found["requests"]["states"] == {"received": 1}
        assert found["requests"]["days"][-1]["open"] == 1
        assert found["certificates"] == {"replaced": 1, "verified": 1}
        assert [(one["about"], one["model"], one["effect"]) for one in found["audits"]] == [
            (second, "sentiment", "passed")
        ]
        assert [one["digest"] for one in found["due"]] == [second]
        for role in (None, "submit"):
            assert client.get("/overview", role).json() == found | {"requests": None}


def test_a_session_says_what_its_token_allows(client: SiteClient) -> None:
    found = client.get("/session", "submit").json()
    assert found == {"name": "submit client", "roles": ["submit"], "persons": []}
    assert client.get("/session", None).status_code == 401


def test_requests_are_found_by_case_number_and_id(client: SiteClient) -> None:
    first, second = (client.submit(requester=number).json()["id"] for number in ("Case-17", "case-18"))

    def found(text: str) -> list[str]:
        return [one["id"] for one in client.get("/requests", params={"text": text}).json()["requests"]]

    assert found("CASE-17") == [first]
    assert found(second[:12]) == [second]
    assert set(found("case")) == {first, second}
    assert found("speaker") == []

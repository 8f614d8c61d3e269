"""Webhooks: signed, in order, sent again until they are accepted, across restarts, and again on demand."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partialmethod
from pathlib import Path

import pytest

from mbd.errors import UsageError
from mbd.formats.access import WebhookState
from mbd.production.request_store import RequestStore
from mbd.records import now
from mbd.serving.webhooks import Webhook, read_secret
from tests.refusals import refused
from tests.serving.receiver import KEY, SECRET, Receiver, receiving
from tests.serving.site import Site, SiteClient
from tests.serving.waiting import wait_until


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("MBD_WEBHOOK_SECRET", SECRET)
    monkeypatch.setattr(Webhook, "__init__", partialmethod(Webhook.__init__, first_pause=0.05))
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def hooked(tmp_path: Path, receiver: Receiver) -> Site:
    return Site.make(tmp_path, f"serving.webhooks=[{receiver.url}]", "serving.poll_seconds=0.1")


def started(client: SiteClient) -> SiteClient:
    """Wait until the webhook has noted from when on it receives events."""
    wait_until(lambda: list(client.site.golden.private.list("webhooks/")))
    return client


def submitted(site: Site, minutes_ago: int) -> None:
    at = now() - timedelta(minutes=minutes_ago)
    RequestStore(site.golden.private, site.golden.request_key, clock=lambda: at).submit(
        "sentiment", ["audio"], due_days=3
    )


def test_each_change_of_a_request_is_posted_once_and_in_order(hooked: Site, receiver: Receiver) -> None:
    with hooked.client() as client:
        started(client)
        first = client.submit().json()["id"]
        wait_until(lambda: len(receiver.events) == 1)
        client.post(f"/requests/{first}/cancel", role="operate")
        wait_until(lambda: len(receiver.events) == 2)
        other = hooked.golden.request_store.submit("sentiment", ["audio"], due_days=3)  # by another process
        wait_until(lambda: len(receiver.events) == 3 and not client.service.webhooks[0].pending())
        found = client.get("/webhooks", "operate").json()["webhooks"]
        assert [(one["pending"], one["failures"]) for one in found] == [(0, 0)]
    assert [event["id"] for event in receiver.events] == [f"{first}-0", f"{first}-1", f"{other.id}-0"]
    assert [event["type"] for event in receiver.events] == ["request.received", "request.cancelled", "request.received"]
    assert receiver.seen == 3


def test_an_event_is_sent_again_until_it_is_accepted(hooked: Site, receiver: Receiver) -> None:
    receiver.statuses = [500, 503, 429, 302]
    with hooked.client() as client:
        started(client)
        first, second = client.submit().json()["id"], client.submit().json()["id"]
        wait_until(lambda: len(receiver.events) == 2 and not client.service.webhooks[0].pending())
        assert "mbd_webhook_pending_events 0.0" in client.get("/metrics", None).text
        assert "mbd_webhook_failures_total 4.0" in client.get("/metrics", None).text
    assert {event["request"] for event in receiver.events} == {first, second}
    assert receiver.seen == 6


def test_an_event_that_is_refused_for_good_is_left(hooked: Site, receiver: Receiver) -> None:
    receiver.statuses = [400]
    with hooked.client() as client:
        started(client)
        client.submit()
        wait_until(lambda: receiver.seen == 1)
        second = client.submit().json()["id"]
        wait_until(lambda: receiver.events)
    assert [event["request"] for event in receiver.events] == [second]


def test_what_was_not_delivered_is_delivered_after_a_restart(
    hooked: Site, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.statuses = [500] * 1000
    with hooked.client() as client:
        started(client)
        before = client.submit().json()["id"]
        wait_until(lambda: receiver.seen > 1)
    while_stopped = hooked.golden.request_store.submit("sentiment", ["audio"], due_days=3).id
    receiver.statuses = []
    with hooked.client() as client:
        wait_until(lambda: len(receiver.events) == 2 and not client.service.webhooks[0].pending())
    assert {event["request"] for event in receiver.events} == {before, while_stopped}
    with hooked.client() as client:  # nothing is sent twice
        later = client.submit().json()["id"]
        wait_until(lambda: len(receiver.events) == 3)
    assert receiver.events[-1]["request"] == later


def test_events_can_be_replayed_from_a_time_on(hooked: Site, receiver: Receiver) -> None:
    submitted(hooked, minutes_ago=30)  # before there was a webhook
    with hooked.client() as client:
        started(client)
        hour_ago = (now() - timedelta(hours=1)).isoformat()
        answer = client.post("/webhooks/replay", {"since": hour_ago}, role="operate")
        assert (answer.status_code, answer.json()["events"]) == (202, 1)
        wait_until(lambda: len(receiver.events) == 1)
        again = client.post("/webhooks/replay", {"since": hour_ago}, role="operate")
        assert again.json()["events"] == 1
        wait_until(lambda: len(receiver.events) == 2)
        assert client.post("/webhooks/replay", {"since": "2026-01-01"}, role="operate").status_code == 422
    assert receiver.events[0] == receiver.events[1]


def test_two_servers_on_one_store_deliver_everything(hooked: Site, receiver: Receiver) -> None:
    with hooked.client() as one, hooked.client() as other:
        started(one)
        ids = {one.submit().json()["id"] for _ in range(5)} | {other.submit().json()["id"] for _ in range(5)}
        wait_until(lambda: {event["request"] for event in receiver.events} == ids)


def test_the_state_of_a_webhook_stays_small(hooked: Site, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mbd.serving.webhooks._KEPT", 20)
    for number in range(40):
        submitted(hooked, minutes_ago=number + 1)
    with hooked.client() as client:
        started(client)
        client.post("/webhooks/replay", {"since": (now() - timedelta(hours=9)).isoformat()}, role="operate")
        wait_until(lambda: len(receiver.events) == 40 and not client.service.webhooks[0].pending())
    (stored,) = hooked.golden.private.list("webhooks/")
    state = WebhookState.from_bytes(hooked.golden.private.read(stored.name), "state")
    assert len(state.delivered) < 20
    assert len({event["id"] for event in receiver.events}) == 40


def test_an_invalid_state_is_made_again(hooked: Site, receiver: Receiver) -> None:
    with hooked.client() as client:
        started(client)
    (stored,) = hooked.golden.private.list("webhooks/")
    (hooked.golden.folder / "store" / "private" / stored.name).write_bytes(b"{}")
    with hooked.client() as client:
        wait_until(lambda: hooked.golden.private.read(stored.name) != b"{}")
        client.submit()
        wait_until(lambda: len(receiver.events) == 1)


@pytest.mark.parametrize("secret", [None, "", "short", "whsec_", "whsec_AAAA", "whsec_ü", "whsec_" + "A" * 31])
def test_webhooks_need_a_secret(monkeypatch: pytest.MonkeyPatch, secret: str | None) -> None:
    if secret is None:
        monkeypatch.delenv("MBD_WEBHOOK_SECRET", raising=False)
    else:
        monkeypatch.setenv("MBD_WEBHOOK_SECRET", secret)
    with refused(UsageError, key="MBD_WEBHOOK_SECRET"):
        read_secret()
    monkeypatch.setenv("MBD_WEBHOOK_SECRET", SECRET)
    assert read_secret() == KEY

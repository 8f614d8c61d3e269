"""Requests over HTTP: entered once, listed by deadline, cancelled; what is not valid is answered with what there is."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from mbd.formats.request import Lease
from tests.monitoring.golden_store import days_from_now
from tests.serving.site import Site, SiteClient


def test_a_request_is_entered_and_can_be_looked_at(client: SiteClient) -> None:
    answer = client.submit(reason="withdrawn consent", requester="case-17")
    assert answer.status_code == 201
    found = answer.json()
    assert answer.headers["Location"] == f"/requests/{found['id']}"
    assert (found["state"], found["requester"]) == ("received", "case-17")
    due, received = datetime.fromisoformat(found["due"]), datetime.fromisoformat(found["received"])
    assert due - received == timedelta(days=client.service.params.requests.due_days)
    assert client.get(f"/requests/{found['id']}", "submit").json() == found
    assert client.site.golden.request_store.get(found["id"]).reason == "withdrawn consent"


def test_the_same_idempotency_key_enters_one_request_for_each_client(client: SiteClient) -> None:
    first, again = client.submit("k-1"), client.submit("k-1")
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    assert client.submit("k-2").json()["id"] != first.json()["id"]
    client.site.tokens["submit"], _ = client.site.token_file.new("another client", ["submit"])
    assert client.submit("k-1").json()["id"] != first.json()["id"]
    other = client.submit("k-1", modalities=["text"])
    assert (other.status_code, other.json()["detail"]) == (422, "this token belongs to another request")


def test_a_rotated_token_keeps_its_idempotency_keys(client: SiteClient) -> None:
    first = client.submit("k").json()["id"]
    client.site.tokens["submit"], _ = client.site.token_file.rotate("submit client", timedelta(0))
    assert client.submit("k").json()["id"] == first


@pytest.mark.parametrize(
    ("changes", "key", "known"),
    [
        ({"model": "elsewhere"}, "model", ["sentiment"]),
        ({"modalities": ["smell"]}, "modalities", ["audio", "text", "visual"]),
        ({"modalities": ["audio", "smell"]}, "modalities", ["audio", "text", "visual"]),
        ({"modalities": []}, "modalities", None),
        ({"model": "../x"}, "model", None),
        ({"requester": "ann@example.org"}, "requester", None),
        ({"reason": "a\x1b[2Jb"}, "reason", None),
        ({"reason": "a\u202eb"}, "reason", None),
        ({"reason": "x" * 101}, "reason", None),
        ({"subject": "ann"}, "subject", None),
        ({"person": "ann"}, None, None),
    ],
)
def test_what_is_not_valid_is_answered_with_what_there_is(
    client: SiteClient, changes: dict[str, Any], key: str | None, known: list[str] | None
) -> None:
    answer = client.submit(**changes)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert (problem.get("key"), problem.get("known")) == (key, known)
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert "smell" not in answer.text and "ann" not in answer.text and "../x" not in answer.text


def test_requests_of_the_configured_model_are_accepted_before_anything_is_published(site: Site) -> None:
    with site.client() as client:
        assert client.submit().status_code == 201
        assert client.submit(model="elsewhere").json()["known"] == ["sentiment"]


def test_pages_hold_every_request_once_nearest_deadline_first(client: SiteClient) -> None:
    store = client.site.golden.request_store
    ids = [store.submit("sentiment", ["audio"], due_days=1 + number % 3).id for number in range(7)]
    client.rescan()
    pages, after = [], None
    while True:
        page = client.get("/requests", params={"limit": 3} | ({"after": after} if after else {})).json()
        pages.append(page["requests"])
        if not (after := page["next"]):
            break
    assert [len(page) for page in pages] == [3, 3, 1]
    found = [request for page in pages for request in page]
    assert {request["id"] for request in found} == set(ids)
    assert found == sorted(found, key=lambda request: (request["due"], request["id"]))


def test_a_list_has_what_was_just_entered_and_can_be_filtered(client: SiteClient) -> None:
    first, second = client.submit().json()["id"], client.submit(modalities=["text"]).json()["id"]
    client.post(f"/requests/{second}/cancel", role="operate")

    def listed(**params: object) -> set[str]:
        return {request["id"] for request in client.get("/requests", params=params).json()["requests"]}

    assert listed() == {first, second}
    assert listed(open=True) == listed(state="received") == {first}
    assert listed(state=["received", "cancelled"]) == {first, second}
    assert listed(modality="text") == {second}
    assert listed(model="elsewhere") == set()
    client.rescan()
    assert listed() == {first, second}


def test_a_page_that_begins_nowhere_is_refused(client: SiteClient) -> None:
    for wrong in ("x", "////", "AAAA", "bmFuIHg"):
        answer = client.get("/requests", params={"after": wrong})
        assert answer.status_code in (200, 422), wrong
    assert client.get("/requests", params={"after": "x"}).json()["key"] == "after"


def test_a_request_that_no_worker_has_started_can_be_cancelled(client: SiteClient) -> None:
    identifier = client.submit().json()["id"]
    assert client.post(f"/requests/{identifier}/cancel", role="operate").json()["state"] == "cancelled"
    again = client.post(f"/requests/{identifier}/cancel", role="operate")
    assert (again.status_code, again.json()["type"]) == (409, "urn:missing-by-design:problem:conflict")
    store = client.site.golden.request_store
    taken = store.submit("sentiment", ["audio"], due_days=3)
    store.claim(taken, Lease(worker="w", until=days_from_now(1), batch="b" * 16))
    assert client.post(f"/requests/{taken.id}/cancel", role="operate").status_code == 409
    assert client.post(f"/requests/{'0' * 16}/cancel", role="operate").status_code == 404


def test_a_request_shows_neither_the_worker_nor_paths(client: SiteClient) -> None:
    store = client.site.golden.request_store
    request = store.submit("sentiment", ["audio"], due_days=3)
    store.change(
        request.id, lambda found: found.moved("failed", "host-17", found.received, "cannot read /var/lib/x/model")
    )
    text = client.get(f"/requests/{request.id}").text
    assert "cannot read PATH" in text
    assert "host-17" not in text and "/var" not in text


def test_without_its_store_the_server_answers_and_takes_no_request(client: SiteClient) -> None:
    identifier = client.submit().json()["id"]
    client.rescan()
    client.service.monitor.stop()  # a scan of its own could come between the next two lines
    folder = client.site.golden.folder
    (folder / "store").rename(folder / "away")
    (folder / "store").write_text("not a folder")
    answer = client.submit()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert str(folder) not in answer.text
    client.rescan()
    assert [request["id"] for request in client.get("/requests").json()["requests"]] == [identifier]
    assert "mbd_store_up 0.0" in client.get("/metrics").text
    (folder / "store").unlink()
    (folder / "away").rename(folder / "store")
    assert client.submit().status_code == 201


def test_a_request_counts_as_certified_only_if_the_log_shows_it(client: SiteClient) -> None:
    golden = client.site.golden
    (genuine,) = client.service.history.certificates
    for certificate, modality, state in (
        (genuine, "audio", "certified"),
        (genuine, "text", "running"),
        ("0" * 64, "audio", "running"),
        (None, "audio", "running"),
    ):
        request = golden.request_store.submit("sentiment", [modality], due_days=3)
        golden.request_store.change(
            request.id,
            lambda found, to=certificate: found.moved("certified", "w", found.received, certificate=to),  # type: ignore[misc]
        )
        client.rescan()
        shown = client.get(f"/requests/{request.id}").json()
        (listed,) = (one for one in client.get("/requests").json()["requests"] if one["id"] == request.id)
        assert shown["state"] == listed["state"] == state
        assert shown["certificate"] == listed["certificate"] == (certificate if state == "certified" else None)

"""Requests of persons over HTTP: an id is in no answer, log line or other byte; no answer says who is in the data."""

import logging
from pathlib import Path

import pytest

from mbd.features.contract import FeatureSet
from mbd.history.lineage import SUBJECTS, read_subject
from mbd.params import load_params
from mbd.steps import features
from mbd.trust.commitments import LineageKey
from tests.production.small import SETTINGS
from tests.serving.site import Site, SiteClient

KEY = LineageKey(bytes(range(32)))
UNKNOWN = "ann-of-nowhere"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "features"
    features.run(load_params(None, SETTINGS), folder)
    return folder


@pytest.fixture
def person(data: Path) -> str:
    return str(FeatureSet.open(data).split("train").groups[0])


@pytest.fixture
def taking(client: SiteClient, data: Path) -> SiteClient:
    """A server with the data and the lineage key."""
    client.service.persons = KEY
    return client


def kept(client: SiteClient) -> list[str]:
    return [entry.name for entry in client.service.requests.store.list(SUBJECTS)]


def test_a_persons_request_is_entered_and_their_id_is_in_no_byte(
    taking: SiteClient, person: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = taking.submit("k", subject=person)
    assert (answer.status_code, answer.json()["of_person"]) == (201, True)
    identifier = answer.json()["id"]
    assert taking.submit("k", subject=person).json()["id"] == identifier
    other = taking.submit("k")
    assert (other.status_code, other.json()["detail"]) == (422, "this token belongs to another request")
    taking.rescan()
    pages = [taking.get(path).text for path in (f"/requests/{identifier}", "/requests", "/metrics", "/openapi.json")]
    assert '"of_person":true' in pages[0] and '"of_person":true' in pages[1]
    stored = [file.read_text("latin-1") for file in taking.site.golden.folder.rglob("*") if file.is_file()]
    assert not [text for text in (answer.text, *pages, *stored, caplog.text) if person in text]
    request = taking.site.golden.request_store.get(identifier)
    assert request.subject
    assert read_subject(taking.service.requests.store, request.subject, KEY) == person


def test_the_answer_does_not_say_whether_a_person_is_in_the_data(
    taking: SiteClient, person: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [taking.submit(subject=subject) for subject in (person, UNKNOWN)]
    assert [answer.status_code for answer in answers] == [201, 201]
    own = {"id", "received", "due", "history"}
    first, second = ({k: v for k, v in answer.json().items() if k not in own} for answer in answers)
    assert first == second
    assert UNKNOWN not in answers[1].text + caplog.text
    assert len(kept(taking)) == 2


def test_what_became_of_a_persons_request_is_shown_to_other_roles_than_submit(taking: SiteClient, person: str) -> None:
    path = f"/requests/{taking.submit('k', subject=person).json()['id']}"
    taking.rescan()
    assert taking.post(f"{path}/cancel", role="operate").json()["state"] == "cancelled"
    assert taking.get(path).json()["state"] == "cancelled"
    for seen in (taking.get(path, "submit").json(), taking.submit("k", subject=person).json()):
        assert (seen["state"], len(seen["history"]), seen["certificate"]) == ("received", 1, None)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"modalities": ["audio", "text"]}, "modalities"),
        ({"modalities": ["smell"]}, "modalities"),
        ({"model": "another"}, "subject"),
        ({"subject": ""}, "subject"),
        ({"subject": "p" * 201}, "subject"),
        ({"subject": [UNKNOWN]}, "subject"),
    ],
)
def test_what_a_persons_request_cannot_be_is_refused_without_a_trace(
    site: Site, data: Path, person: str, changes: dict[str, object], key: str
) -> None:
    site.golden.certificate("surgery")
    site.golden.certificate("exact", model="another")
    with site.client() as client:
        client.service.persons = KEY
        answer = client.submit(None, **({"subject": person} | changes))
        assert (answer.status_code, answer.json()["key"]) == (422, key)
        assert not [one for one in (person, UNKNOWN, "ppp") if one in answer.text]
        assert kept(client) == []


def test_a_server_without_the_key_says_where_to_enter_it(client: SiteClient, person: str) -> None:
    answer = client.submit(subject=person)
    assert (answer.status_code, answer.json()["key"]) == (422, "subject")
    assert "mbd request submit --subject" in answer.json()["hint"]
    assert person not in answer.text

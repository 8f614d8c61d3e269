"""A person's deletion whose certificate was withdrawn is carried out again, alone or with what has come in since."""

from mbd.certificate.compose import compose_revocation
from mbd.certificate.guard import admit
from mbd.certificate.publish import announce
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import NothingHeldStatement
from mbd.production.request_store import RequestStore
from mbd.production.submit import submit
from mbd.records import now
from mbd.steps.publish import open_publisher
from tests.history.revocations import not_admitted
from tests.production.registering import NAME, Production
from tests.production.test_persons import ask, carry_out, person_in, production, trained

__all__ = ["production", "trained"]


def withdraw(production: Production, request: DeletionRequest) -> None:
    """Withdraw the certificate that answers a request."""
    statement = compose_revocation(str(request.certificate), "by mistake", now())
    announce(statement, production.params.certificate, open_publisher(production.params, production.url))
    current = production.known().current
    if current is None:
        with not_admitted():
            admit(production.model, production.store, production.trust)


def answered(production: Production) -> list[DeletionRequest]:
    """Return all requests; each is answered by a statement in force, and a second run finds nothing to do."""
    assert carry_out(production) == []
    history, requests = production.history(), list(RequestStore.open(production.params, production.url).all())
    assert {request.state for request in requests} == {"certified"}
    assert all(history.shows(r.certificate, NAME, r.modalities, person=r.of_person) for r in requests)
    return requests


def test_a_person_whose_certificate_was_withdrawn_is_deleted_again_with_others(production: Production) -> None:
    first, second = person_in(production, "train"), person_in(production, "train", 1)
    (done,) = ask(production, first)
    withdraw(production, done)
    assert production.known().current is None
    assert {request.state for request in ask(production, second)} == {"certified"}
    (certificate,) = {request.certificate for request in answered(production)}
    current = production.known().current
    assert current is not None
    assert (current.digest, len(production.known().respected)) == (certificate, 2)


def test_persons_whose_certificates_were_all_withdrawn_are_deleted_again(production: Production) -> None:
    persons = [person_in(production, "train", number) for number in range(2)]
    done = [request for person in persons for request in ask(production, person)]
    for request in done:
        withdraw(production, request)
    assert production.known().current is None
    assert len(carry_out(production)) == 2
    assert len(answered(production)) == 2


def test_a_person_of_whom_a_later_release_holds_nothing_gets_a_statement_of_it(production: Production) -> None:
    """It was made without their recordings, and its certificate names others."""
    first, _ = (ask(production, person_in(production, "train", number))[0] for number in range(2))
    withdraw(production, first)
    before = production.known().current
    assert len(carry_out(production)) == 1
    again = next(request for request in answered(production) if request.id == first.id)
    assert isinstance(production.history().statement(str(again.certificate)), NothingHeldStatement)
    assert production.known().current == before


def test_what_cannot_be_published_keeps_no_other_request_waiting(production: Production) -> None:
    (first,) = ask(production, person_in(production, "train"))
    withdraw(production, first)
    hurried = production.with_store(production.name, "requests.due_days=1")
    submit(hurried.params, production.url, NAME, ["visual"], [person_in(production, "train", 1)])
    states = {request.id == first.id: (request.state, request.history[-1].note) for request in carry_out(production)}
    assert states[True][0] == "certified"
    assert states[False][0] == "failed"
    assert "trained on recordings of a person" in states[False][1]
    assert len(carry_out(production)) == 1
    assert len(answered(production)) == 2

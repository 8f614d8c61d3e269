"""The state of a certificate: the exporter and the certificate package agree."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.certificate.compose import revocation, supersession
from mbd.certificate.state import status_of
from mbd.formats.statement import CERTIFICATE, AnyStatement, Reaudit, ReauditStatement, subjects_of
from mbd.monitoring.facts import CertificateFacts, StatementFacts, facts_of, reaudit_by, state_of
from tests.monitoring.golden_store import golden

DIGEST = "a" * 64
START = golden("surgery").predicate.issued


def audit(passed: bool, days: int) -> ReauditStatement:
    leakage = golden("surgery").predicate.evidence.leakage
    assert leakage
    output = leakage.model_copy(update={"decision": "passed" if passed else "refused", "reasons": ()})
    at = START + timedelta(days=1)
    predicate = Reaudit(leakage=output, issued=at, reaudit_by=START + timedelta(days=days))
    return ReauditStatement(subject=subjects_of({CERTIFICATE: DIGEST}), predicate=predicate)


STATEMENTS = st.one_of(
    st.builds(audit, st.booleans(), st.integers(2, 400)),
    st.just(revocation(DIGEST, "it was wrong", START)),
    st.just(supersession(DIGEST, "b" * 64, "a new one", START)),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(STATEMENTS, max_size=4), st.integers(0, 500))
def test_facts_and_statements_lead_to_the_same_state(about: list[AnyStatement], days: int) -> None:
    at = START + timedelta(days=days)
    wanted = status_of(golden("surgery"), about, at)
    certificate = facts_of(DIGEST, golden("surgery"))
    statements = [facts_of("c" * 64, statement) for statement in about]
    assert isinstance(certificate, CertificateFacts)
    known = [one for one in statements if isinstance(one, StatementFacts)]
    assert state_of(certificate, known, at.timestamp()) == wanted.state
    assert reaudit_by(certificate, known) == wanted.reaudit_by.timestamp()

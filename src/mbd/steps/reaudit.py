"""Step `certificate reaudit`: a signed, logged statement of what new attacks on a certified model found.

If the gate let the model pass, the statement sets the date of the next audit. If it refused, the certificate is
refuted: it no longer verifies, and the step ends with exit code 3.
"""

from pathlib import Path

from mbd.certificate.commitments import Commitments
from mbd.certificate.compose import reaudit
from mbd.certificate.publish import announce, finish_pending
from mbd.certificate.state import entry
from mbd.errors import GateRefusedError
from mbd.formats.statement import ReauditStatement
from mbd.params import Params
from mbd.records import now
from mbd.steps.publish import open_publisher


def run(params: Params, certificate: str, leakage: Path, store: str) -> ReauditStatement:
    """State what the attacks in `leakage` found about a certificate.

    Args:
        params: their section `certificate` has keys, trust and the days until the next audit.
        certificate: its SHA-256, or the start of it.
        leakage: folder that the step `attack` wrote.
        store: URL of the store that the certificate is published in.

    Raises:
        GateRefusedError: the gate refused the model. The statement is published nevertheless.
    """
    publisher, commitments = open_publisher(params, store), Commitments()
    finish_pending(publisher)
    found = entry(publisher.store, certificate, publisher.trust, now())
    days = params.certificate.reaudit_days
    statement = reaudit(found.digest, found.statement, leakage, now(), days, commitments)
    announce(statement, params.certificate, publisher, commitments)
    if not statement.predicate.passed:
        raise GateRefusedError(
            f"the audit refutes certificate {found.digest}: {'; '.join(statement.predicate.leakage.reasons)}",
            file=leakage,
            hint="this is in the log now, and the certificate no longer verifies: delete in another way",
        )
    return statement

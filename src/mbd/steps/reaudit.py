"""Step `certificate reaudit`: a signed, logged statement of what new attacks on a certified model found.

If the gate let the model pass, the statement sets the date of the next audit. If it refused, the certificate is
refuted: it no longer verifies, and the step ends with exit code 3. Whether the model passed is decided again from the
numbers in the record: one whose decision does not follow from them is not signed.
"""

import os
from pathlib import Path

from mbd.certificate.compose import reaudit
from mbd.certificate.publish import announce
from mbd.errors import GateRefusedError, VerificationError
from mbd.formats.statement import ReauditStatement
from mbd.history.facts import audit_effect
from mbd.history.state import entry
from mbd.params import Params
from mbd.records import now
from mbd.steps.certify import RUN_ID
from mbd.steps.context import reads
from mbd.steps.publish import open_publisher
from mbd.trust.commitments import Commitments


@reads("leakage")
def run(params: Params, certificate: str, leakage: Path, store: str) -> ReauditStatement:
    """State what the attacks in `leakage` found about a certificate.

    Args:
        params: their section `certificate` has keys, trust and the days until the next audit.
        certificate: its SHA-256, or the start of it.
        leakage: folder that the step `attack` wrote.
        store: URL of the store that the certificate is published in.

    Raises:
        GateRefusedError: the gate refused the model. The statement is published nevertheless.
        VerificationError: The record says that the model passed, and its numbers do not. Nothing is published.
    """
    publisher, commitments = open_publisher(params, store), Commitments()
    publisher.complete()
    found = entry(publisher.store, certificate, publisher.trust, now())
    days = params.certificate.reaudit_days
    run_id = os.environ.get(RUN_ID) or None
    statement = reaudit(found.digest, found.statement, leakage, now(), days, commitments, run_id)
    effect, reason = audit_effect(statement, found.facts)
    if statement.predicate.passed and effect != "passed":
        raise VerificationError(
            f"the record says that the model passed, and every reader would refuse it: {reason}",
            file=leakage,
            hint="run `mbd attack` again on the certified model",
        )
    announce(statement, params.certificate, publisher, commitments)
    if not statement.predicate.passed:
        raise GateRefusedError(
            f"the audit refutes certificate {found.digest}: {'; '.join(statement.predicate.leakage.reasons)}",
            file=leakage,
            hint="the audit is in the log and the certificate no longer verifies; delete with another method",
        )
    return statement

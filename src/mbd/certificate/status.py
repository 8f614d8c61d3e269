"""Where a certificate stands, from all verified statements about it.

revoked       it was withdrawn
superseded    another certificate has taken its place
refuted       a later audit was refused by the gate
overdue       the date of the next audit has passed, and no audit has set a later one
valid         none of these
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from mbd.formats.statement import (
    AnyStatement,
    DeletionStatement,
    ReauditStatement,
    RevocationStatement,
    SupersessionStatement,
)
from mbd.records import Record


class Status(Record):
    """Where a certificate stands."""

    state: Literal["valid", "overdue", "refuted", "superseded", "revoked"]
    reason: str
    reaudit_by: datetime
    """by when the model is to be attacked again, as the last audit that it passed has set it"""


def status(certificate: DeletionStatement, about: Iterable[AnyStatement], at: datetime) -> Status:
    """Return where a certificate stands at a time, from all verified statements about it."""
    about = list(about)
    audits = [s.predicate for s in about if isinstance(s, ReauditStatement)]
    due = max([certificate.predicate.reaudit_by, *(audit.reaudit_by for audit in audits if audit.passed)])
    for said in about:
        if isinstance(said, RevocationStatement):
            reason = f"revoked {said.predicate.issued:%Y-%m-%d}: {said.predicate.reason}"
            return Status(state="revoked", reason=reason, reaudit_by=due)
    for said in about:
        if isinstance(said, DeletionStatement | SupersessionStatement):
            reason = f"replaced {said.predicate.issued:%Y-%m-%d} by another certificate"
            return Status(state="superseded", reason=reason, reaudit_by=due)
    for audit in audits:
        if not audit.passed:
            reason = f"refused by the audit of {audit.issued:%Y-%m-%d}: {'; '.join(audit.leakage.reasons)}"
            return Status(state="refuted", reason=reason, reaudit_by=due)
    if at > due:
        return Status(state="overdue", reason=f"it was to be attacked again by {due:%Y-%m-%d}", reaudit_by=due)
    return Status(state="valid", reason=f"to be attacked again by {due:%Y-%m-%d}", reaudit_by=due)

"""Verification: everything about a certificate that can be checked, by anyone.

    given = from_folder(Path("bundle"), model=Path("model"), store=store)       # or from_store(store, digest, folder)
    verdict = verify_bundle(given, read_trust(Path("trust.json")))
    verdict.decision, verdict.problems

Checks trust only the holders of the keys in the trust file, and none needs torch. Whether a certificate is still in
force is known to the store alone: without one it is `not verified`.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from mbd.formats.predicate import CHECKPOINT_AGE
from mbd.formats.statement import SUBJECTS, DeletionStatement
from mbd.records import now
from mbd.trust.trust_file import Trust
from mbd.verifier.bundle import VerificationInput, from_folder, from_store
from mbd.verifier.checks import REAUDIT, check_contents, check_date, check_digests, digest_name, summarise_claims
from mbd.verifier.reader import CANONICAL, SCHEMA, VALIDITY, ParsedEnvelope, verify_envelope
from mbd.verifier.verdict import (
    SIGNATURES,
    Check,
    StoreStatus,
    Verdict,
    decide,
    failed,
    not_checkable,
    status_without_store,
)

if TYPE_CHECKING:
    from mbd.history.history import History

__all__ = ["Check", "Verdict", "VerificationInput", "from_folder", "from_store", "verify_bundle"]


def verify_bundle(
    verification_input: VerificationInput,
    trust: Trust | None,
    *,
    at: datetime | None = None,
    unpublished: bool = False,
    history: "History | None" = None,
    max_age: timedelta | None = CHECKPOINT_AGE,
) -> Verdict:
    """Check everything that can be checked.

    Without `trust` no signature counts. `unpublished`: the certificate is about to be published, so that it is not yet
    in the log is no fault. `at`: the time that counts as now. `history`:
    what the store's log says, if it was read before. `max_age`: how old the log's checkpoint may be.
    """
    at = at or now()
    proof = verification_input.proof
    if verification_input.store is not None and trust is not None:
        from mbd.history.state import find_proof  # noqa: PLC0415 -- who asks no store reads no log

        proof = find_proof(verification_input.digest, proof, verification_input.store, trust, history)
    read = verify_envelope(verification_input.envelope, proof, trust, at=at, unpublished=unpublished)
    if not isinstance(read.statement, DeletionStatement):
        return _verdict(verification_input, trust, [*_no_certificate(read)])
    statement = read.statement
    status = status_without_store()
    if verification_input.store is not None:
        from mbd.history.state import check_status  # noqa: PLC0415 -- who asks no store reads no log

        digest, place = verification_input.digest, verification_input.store
        status = check_status(digest, read.inclusion, place, trust, at, history=history, max_age=max_age)
    digests = check_digests(verification_input, statement)
    checks = [
        *read.checks,
        *status.checks,
        *digests,
        *check_contents(verification_input, statement, digests),
        check_date(statement, status.reaudit_by, at, replaced=status.successor is not None),
    ]
    return _verdict(verification_input, trust, checks, read, status)


def _no_certificate(read: ParsedEnvelope) -> list[Check]:
    checks = list(read.checks)
    if read.statement is not None:
        reason = f"this is not a certificate, but a statement of type {read.statement.predicateType}"
        checks = [failed(SCHEMA, reason, "not verified"), not_checkable(CANONICAL, reason, required=True)]
    names = (SIGNATURES, VALIDITY, *map(digest_name, SUBJECTS), REAUDIT)
    return checks + [not_checkable(name, "there is no certificate that could be read") for name in names]


def _verdict(
    verification_input: VerificationInput,
    trust: Trust | None,
    checks: list[Check],
    read: ParsedEnvelope | None = None,
    status: StoreStatus | None = None,
) -> Verdict:
    claims: dict[str, Any] = {}
    if read and read.envelope and isinstance(read.statement, DeletionStatement):
        claims = summarise_claims(read.statement, [signature.keyid for signature in read.envelope.signatures], status)
    return Verdict(
        source=verification_input.where,
        decision=decide(checks),
        certificate=verification_input.digest if read else None,
        claims=claims,
        model=str(verification_input.model) if verification_input.model else None,
        store=verification_input.store.url if verification_input.store else None,
        trust=trust.digest if trust else None,
        successor=status.successor if status else None,
        checks=tuple(checks),
    )

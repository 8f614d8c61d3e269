"""What happens to a certificate after it was published: it is revoked, replaced, or its model is attacked again.

Each of these is a signed statement about the certificate, in the log like the certificate itself; nothing is ever
changed or taken away. Where a certificate stands follows from the statements about it (:mod:`mbd.certificate.status`).

A statement is put down below `pending/` before it is logged, and taken away when it is published: one whose writer was
killed in between is finished by the next writer.
"""

from datetime import datetime, timedelta
from pathlib import Path

from mbd.certificate.commitments import Commitments, keep_private
from mbd.certificate.compose import hidden_digests, public_leakage
from mbd.certificate.envelope import Envelope, verify_envelope
from mbd.certificate.publish import Publisher, publish_statement
from mbd.certificate.signing import sign_statement
from mbd.errors import MbdError, UsageError
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.statement import (
    CERTIFICATE,
    WEIGHTS,
    AboutCertificate,
    DeletionStatement,
    Reaudit,
    ReauditStatement,
    Revocation,
    RevocationStatement,
    Subject,
    Supersession,
    SupersessionStatement,
    parse_payload,
    subjects_of,
)
from mbd.params import CertificateSettings

PENDING = "pending/"


def revocation(certificate: str, reason: str, issued: datetime) -> RevocationStatement:
    """Return the statement that withdraws a certificate, named by the SHA-256 of its envelope."""
    if not reason.strip():
        raise UsageError("a certificate is revoked for a reason", key="--reason")
    return RevocationStatement(subject=_about(certificate), predicate=Revocation(reason=reason, issued=issued))


def supersession(certificate: str, by: str, reason: str, issued: datetime) -> SupersessionStatement:
    """Return the statement that one certificate takes the place of another."""
    if certificate == by:
        raise UsageError("a certificate cannot take its own place", key="--by", value=by)
    return SupersessionStatement(
        subject=_about(certificate), predicate=Supersession(by=by, reason=reason, issued=issued)
    )


def reaudit(
    certificate: str,
    statement: DeletionStatement,
    leakage: Path,
    issued: datetime,
    days: int,
    commitments: Commitments,
) -> ReauditStatement:
    """Return the statement that the attacks in `leakage` (as `mbd attack` wrote them) were made on its model.

    An audit that the gate refused is told as well: the certificate is refuted by it.
    """
    file = leakage / LEAKAGE
    record = LeakageRecord.read(file, "leakage record", "`mbd attack` writes it")
    predicate = statement.predicate
    facts: dict[str, tuple[object, object]] = {
        "models.after": (record.models.get("after"), statement.digests[WEIGHTS]),
        "modalities": (sorted(record.modalities), sorted(predicate.deleted.modalities)),
    }
    for key, (attacked, certified) in facts.items():
        if attacked != certified:
            raise UsageError(
                f"what was attacked is not what was certified: {attacked} instead of {certified}",
                file=file,
                key=key,
                hint="attack the model that the certificate is about",
            )
    secret = predicate.guarantee.kind != "empirical"
    hidden = hidden_digests(_old(record), record.data, commitments) if secret else {}
    return ReauditStatement(
        subject=_about(certificate),
        predicate=Reaudit(
            leakage=public_leakage(record, hidden), issued=issued, reaudit_by=issued + timedelta(days=days)
        ),
    )


def announce(
    statement: AboutCertificate,
    settings: CertificateSettings,
    publisher: Publisher,
    commitments: Commitments | None = None,
) -> str:
    """Sign, log and publish a statement about a certificate; return the SHA-256 of its envelope."""
    finish_pending(publisher)
    envelope = sign_statement(statement, settings)
    verify_envelope(envelope, publisher.trust, statement.predicate.issued)
    if commitments and commitments.openings:
        keep_private(Path(settings.private), envelope.digest, commitments.openings)
    pending = publisher.store.create(PENDING + envelope.digest, envelope.to_bytes())
    publish_statement(publisher, envelope.to_bytes())
    publisher.store.delete([pending])
    return envelope.digest


def finish_pending(publisher: Publisher) -> int:
    """Publish the statements whose writer was killed; return how many. What nobody trusted has signed is left alone."""
    finished = 0
    for pending in list(publisher.store.list(PENDING)):
        data = publisher.store.read(pending.name)
        try:
            envelope = Envelope.parse(data)
            verify_envelope(envelope, publisher.trust, parse_payload(envelope.content).predicate.issued)
        except MbdError:
            continue
        publish_statement(publisher, data)
        publisher.store.delete([pending])
        finished += 1
    return finished


def _about(certificate: str) -> tuple[Subject, ...]:
    return subjects_of({CERTIFICATE: certificate})


def _old(record: LeakageRecord) -> list[str]:
    return [record.models["before"]] if "before" in record.models else []

"""Publishing: everything goes into the store in an order in which a kill at any point leaves nothing half-published.

    1. the files that the certificate is about, under their digests     (not reachable without a certificate)
    2. the entry in the log                                             (decides the order; the same leaf is there once)
    3. certificate.json and proof.json, by conditional create           (now it is published)
    4. a marker at the certificate that it replaces, if there is one
    5. the pointers latest/MODEL/MODALITY, by compare-and-swap          (never back to an earlier entry of the log)

A statement about a certificate (:func:`announce`) is stored below `pending/` before it is logged and removed from there
when it is published: the next writer finishes what a killed one has left. Nothing published is ever changed.

Run again, each part finds its work done. The certificate goes under Object Lock where the store has it; weights never.
"""

from dataclasses import dataclass
from pathlib import Path

from securesystemslib.signer import Signer

from mbd.certificate.commitments import Commitments, keep_private
from mbd.certificate.envelope import certificate_digest
from mbd.certificate.keys import sign_statement
from mbd.certificate.layout import about_name, certificate_name, latest_name, object_name, proof_name, read_pointer
from mbd.certificate.log.append import append
from mbd.certificate.log.inclusion import Inclusion, leaf_of
from mbd.certificate.reader import parse_envelope, verify_envelope, verify_inclusion
from mbd.certificate.state import subject_certificate
from mbd.certificate.trust import Trust
from mbd.errors import MbdError, VerificationError
from mbd.formats.receipt import LatestPointer, LockRecord, LogRecord, ObjectRecord, Receipt
from mbd.formats.statement import CERTIFICATE, PROOF, SUBJECTS, WEIGHTS, AboutCertificate, DeletionStatement
from mbd.params import CertificateSettings
from mbd.params.operations import StoreSettings
from mbd.records import now
from mbd.storage import lock_for
from mbd.storage.store import Lock, OtherContentError, Store, StoredObject, update

PENDING = "pending/"


@dataclass(frozen=True)
class Publisher:
    """Who publishes where: the store and its settings, the key that signs the log, and whom readers trust."""

    store: Store
    settings: StoreSettings
    log_signer: Signer
    trust: Trust


def publish_certificate(publisher: Publisher, envelope: bytes, files: dict[str, Path]) -> tuple[Receipt, Inclusion]:
    """Publish a certificate that has been verified, and the `files` it is about by their names."""
    statement = parse_envelope(envelope).require()
    if not isinstance(statement, DeletionStatement):
        raise VerificationError("this is no certificate", value=statement.predicateType)
    store, predicate = publisher.store, statement.predicate
    objects = [
        _object_record(name, sha256, store.create(object_name(sha256), files[name]))
        for name, sha256 in _in_order(statement)
    ]
    certificate, proof, inclusion = publish_statement(publisher, envelope)
    pointers = tuple(latest_name(predicate.model, modality) for modality in predicate.deleted.modalities)
    for name in pointers:
        _move_pointer(store, name, LatestPointer(certificate=certificate.sha256, index=inclusion.index))
    receipt = Receipt(
        store=store.url,
        model=predicate.model,
        modalities=predicate.deleted.modalities,
        certificate=certificate.sha256,
        weights=statement.digests[WEIGHTS],
        objects=(*objects, certificate, proof),
        log=LogRecord(
            origin=publisher.trust.log_origin,
            index=inclusion.index,
            tree_size=inclusion.tree_size,
            checkpoint=inclusion.checkpoint,
        ),
        pointers=pointers,
        object_lock=_lock_in_words(certificate, store.locks),
    )
    return receipt, inclusion


def publish_statement(publisher: Publisher, envelope: bytes) -> tuple[ObjectRecord, ObjectRecord, Inclusion]:
    """Log and publish a signed statement of any kind; return its object, that of its proof, and the proof."""
    store, digest = publisher.store, certificate_digest(envelope)
    statement = parse_envelope(envelope).require()
    inclusion = append(store, leaf_of(envelope), publisher.log_signer, publisher.trust)
    lock = lock_for(store, publisher.settings, now())
    stored = store.create(certificate_name(digest), envelope, lock=lock)
    proof, inclusion = _create_proof(publisher, digest, envelope, inclusion, lock)
    if (other := subject_certificate(statement)) is not None:
        store.create(about_name(other, digest), f"{digest}\n".encode(), lock=lock)
    kept = inclusion.to_bytes()
    return (
        _object_record(CERTIFICATE, digest, stored),
        _object_record(PROOF, certificate_digest(kept), proof),
        inclusion,
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
    verify_envelope(envelope.to_bytes(), None, publisher.trust, unpublished=True).require()
    if commitments and commitments.openings:
        keep_private(Path(settings.private), envelope.digest, commitments.openings)
    pending = publisher.store.create(PENDING + envelope.digest, envelope.to_bytes())
    publish_statement(publisher, envelope.to_bytes())
    publisher.store.delete([pending])
    return envelope.digest


def finish_pending(publisher: Publisher) -> int:
    """Publish the statements whose writer was killed; return how many. Those without trusted signatures are ignored."""
    finished = 0
    for pending in list(publisher.store.list(PENDING)):
        data = publisher.store.read(pending.name)
        try:
            verify_envelope(data, None, publisher.trust, unpublished=True).require()
        except MbdError:
            continue
        publish_statement(publisher, data)
        publisher.store.delete([pending])
        finished += 1
    return finished


def _create_proof(
    publisher: Publisher, digest: str, envelope: bytes, inclusion: Inclusion, lock: Lock | None
) -> tuple[StoredObject, Inclusion]:
    """Create the proof; one that is there already, of another checkpoint, is kept if it holds."""
    store, name = publisher.store, proof_name(digest)
    try:
        return store.create(name, inclusion.to_bytes(), lock=lock), inclusion
    except OtherContentError:
        there = store.read(name)
        known = verify_inclusion(envelope, there, publisher.trust).inclusion
        if known is None:
            raise
        return store.create(name, there, lock=lock), known


def _in_order(statement: DeletionStatement) -> list[tuple[str, str]]:
    """Return the files to publish, small ones first."""
    digests = statement.digests
    return sorted(((name, digests[name]) for name in SUBJECTS if name in digests), key=lambda pair: pair[0] == WEIGHTS)


def _move_pointer(store: Store, name: str, pointer: LatestPointer) -> None:
    """Let a pointer name this certificate, unless it names a later one already."""

    def moved(content: bytes | None) -> bytes | None:
        later = content is not None and read_pointer(content, name).index >= pointer.index
        return None if later else pointer.to_bytes()

    update(store, name, moved)


def _object_record(what: str, sha256: str, stored: StoredObject) -> ObjectRecord:
    """Return what a receipt says of an object."""
    lock = LockRecord(mode=stored.lock.mode, until=stored.lock.until) if stored.lock else None
    return ObjectRecord(what=what, name=stored.name, sha256=sha256, size=stored.size, version=stored.version, lock=lock)


def _lock_in_words(certificate: ObjectRecord, possible: bool) -> str:
    """Say whether the store itself keeps the certificate from being deleted or overwritten."""
    if certificate.lock is not None:
        return (
            f"the certificate is kept under {certificate.lock.mode} until {certificate.lock.until:%Y-%m-%d %H:%M:%SZ}"
        )
    why = "store.lock_mode is null" if possible else "this store has no Object Lock"
    return (
        f"none: {why}, so anyone who may write to it can delete the certificate; the log and every copy of the bundle "
        "still show that it was there"
    )

"""Publishing: everything goes into the store in an order in which a kill at any point leaves nothing half-published.

    1. the files that the certificate is about, under their digests     (not reachable without a certificate)
    2. certificate.json, by conditional create                          (counts for nothing as long as it is not logged)
    3. the entry in the log                                             (now it is published; a leaf is there once)
    4. proof.json
    5. the pointers latest/MODEL/MODALITY, by compare-and-swap          (never back to an earlier entry of the log)

A statement about a certificate (:func:`announce`) takes steps 2 to 4. The envelope is in the store before its leaf
claims a place in the log, so that any writer can tell whether a claim is of a statement that counts: others are never
logged, because an entry without its envelope would block everyone who reads the log. The next writer completes what a
killed one has claimed. Nothing published is ever changed.

A certificate is not published if the log says that a modality is revoked for the model's name and the model takes it,
or that recordings of a person were deleted and it is not known that the model was made without them: the weights that
it was deleted from must be those of a release that was. Where the certificate only commits to their digest, the issuer
opens it.

Run again, each part finds its work done. The certificate goes under Object Lock where the store has it; weights never.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from securesystemslib.signer import Signer

from mbd.errors import DataError, VerificationError
from mbd.formats.files import CERTIFICATE, PROOF, WEIGHTS
from mbd.formats.layout import (
    LatestPointer,
    LockRecord,
    LogRecord,
    ObjectRecord,
    Receipt,
    certificate_name,
    latest_name,
    object_name,
    proof_name,
    read_pointer,
)
from mbd.formats.predicate import DeletedContent
from mbd.formats.statement import SUBJECTS, AboutCertificate, AnyStatement, DeletionStatement
from mbd.history.facts import CertificateFacts
from mbd.history.history import ModelHistory, trained_on_revoked
from mbd.history.replay import read_history
from mbd.log.append import append_leaf, check_log_signer, complete_claims, open_to_sign
from mbd.log.check import Repaired, renew_head, repair_log
from mbd.log.checkpoint import Checkpoint, Inclusion, leaf_of
from mbd.log.reader import Log
from mbd.params.operations import CertificateSettings, StoreSettings
from mbd.records import now
from mbd.storage import lock_for
from mbd.storage.store import Lock, OtherContentError, Store, StoredObject, update
from mbd.trust.commitments import Commitments, keep_private, read_values
from mbd.trust.envelope import certificate_digest
from mbd.trust.keys import sign_statement
from mbd.trust.trust_file import Trust
from mbd.verifier.reader import parse_envelope, verify_envelope, verify_inclusion


@dataclass(frozen=True)
class Publisher:
    """Who publishes where: the store and its settings, the key that signs the log, and whom readers trust."""

    store: Store
    settings: StoreSettings
    log_signer: Signer
    trust: Trust
    private: Path | None = None
    """the issuer's folder `certificate.private`; None: commitments cannot be opened"""

    def check_leaf(self, leaf: bytes) -> None:
        """Refuse a leaf that is no statement of trusted signers in this store, or that brings back what is revoked.

        A claim is an object like any other: somebody without a key can claim a place for a certificate that was signed
        and then abandoned.
        """
        statement = verify_leaf(self.store, self.trust, leaf)
        if isinstance(statement, DeletionStatement):
            _refuse_revoked(self, leaf.hex(), statement)

    def complete(self) -> int:
        """Log what a killed writer has left unfinished; return how many entries."""
        return complete_claims(self.store, self.log_signer, self.trust, self.check_leaf)

    def repair(self) -> Repaired:
        """Repair the log, see :func:`mbd.log.check.repair_log`.

        Raises:
            VerificationError: It is damaged beyond that, or does not continue the log that was read here before.

        """
        return repair_log(self.store, self.log_signer, self.trust, self.check_leaf)

    def renew(self) -> Checkpoint | None:
        """Sign the log's head again with the present time; return it, or None if nothing has been logged yet.

        Raises:
            VerificationError: The log is not the newest that this machine knows.

        """
        self.complete()
        return renew_head(self.store, self.log_signer, self.trust)


def verify_leaf(store: Store, trust: Trust, leaf: bytes) -> AnyStatement:
    """Return the statement of a leaf; an MbdError if it is not in the store, or not one of trusted signers."""
    name = certificate_name(leaf.hex())
    return verify_envelope(store.read(name, sha256=leaf.hex()), None, trust, unpublished=True).require(name)


def publish_certificate(publisher: Publisher, envelope: bytes, files: dict[str, Path]) -> tuple[Receipt, Inclusion]:
    """Publish a certificate that has been verified, and the `files` it is about by their names."""
    statement = parse_envelope(envelope).require()
    if not isinstance(statement, DeletionStatement):
        raise VerificationError("this is not a certificate", value=statement.predicateType)
    store, predicate = publisher.store, statement.predicate
    _refuse_revoked(publisher, certificate_digest(envelope), statement)
    objects = [
        _object_record(name, sha256, store.create(object_name(sha256), files[name]))
        for name, sha256 in _in_order(statement)
    ]
    certificate, proof, inclusion = publish_statement(publisher, envelope)
    pointers = tuple(latest_name(predicate.model, modality) for modality in predicate.deleted.modalities)
    for name in pointers:
        _move_pointer(publisher, name, LatestPointer(certificate=certificate.sha256, index=inclusion.index))
    receipt = Receipt(
        store=None if store.url.startswith("file://") else store.url,
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
    check_log_signer(publisher.log_signer, publisher.trust, now())
    open_to_sign(store, publisher.trust)
    lock = lock_for(store, publisher.settings, now())
    stored = store.create(certificate_name(digest), envelope, lock=lock)
    inclusion = append_leaf(store, leaf_of(envelope), publisher.log_signer, publisher.trust, publisher.check_leaf)
    proof, inclusion = _create_proof(publisher, digest, envelope, inclusion, lock)
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
    envelope = sign_statement(statement, settings)
    verify_envelope(envelope.to_bytes(), None, publisher.trust, unpublished=True).require()
    if commitments and commitments.openings:
        keep_private(Path(settings.private), envelope.digest, commitments.openings)
    publish_statement(publisher, envelope.to_bytes())
    return envelope.digest


def _refuse_revoked(publisher: Publisher, digest: str, statement: DeletionStatement) -> None:
    """Refuse a model that holds what was revoked for its name; a certificate that is logged already changes nothing."""
    history, predicate = read_history(publisher.store, publisher.trust), statement.predicate
    if digest in history.digests:
        return
    model = history.require().model(predicate.model)
    if returned := model.returned(predicate.structure.inputs):
        raise VerificationError(
            f"{', '.join(returned)} is revoked for {predicate.model}, and this model takes it",
            key="structure.inputs",
            value=", ".join(predicate.structure.inputs),
            hint="delete from the release that is current (`mbd certificate list`), or publish it under another name",
        )
    _refuse_revoked_persons(publisher, digest, statement, model)


def _refuse_revoked_persons(
    publisher: Publisher, digest: str, statement: DeletionStatement, model: ModelHistory
) -> None:
    """Refuse a model that was not made from a release without the recordings that were deleted for persons.

    An exact deletion has left nothing of the modalities that its model does not take, of any person, nor of the persons
    that it is about: where a certificate was withdrawn, its persons are deleted again, alone or with others.
    """
    predicate, weights = statement.predicate, statement.digests[WEIGHTS]
    taken, exact = set(predicate.structure.inputs), predicate.guarantee.kind == "exact"
    gone = [c for c in model.persons if not exact or taken.intersection(c.modalities)]
    given, values = predicate.lineage.before, _values(publisher, digest)
    before = given.sha256 or values.get(str(given.commitment))
    for deletion in gone:
        if weights == deletion.weights or (before and model.respects(before, deletion)):
            continue
        if not (exact and _deletes_again(predicate.deleted, deletion, values | _values(publisher, deletion.digest))):
            raise VerificationError(
                trained_on_revoked(deletion) if before else "it is not known whether " + trained_on_revoked(deletion),
                key="lineage.before" if before else "certificate.private",
                value=digest,
                hint="delete from the current release (`mbd request run`), or register the model first; `mbd train` "
                "leaves these recordings out"
                if before
                else "publish where the openings of its commitments are",
            )


def _deletes_again(deleted: DeletedContent, before: CertificateFacts, values: Mapping[str, str]) -> bool:
    """Return whether a deletion is about everybody whom an earlier one is about, in the same modalities."""
    persons, earlier = ({values.get(c, c) for c in d.subjects} for d in (deleted, before))
    return earlier <= persons and set(before.modalities) <= set(deleted.modalities)


def _values(publisher: Publisher, digest: str) -> dict[str, str]:
    """Return what the commitments of a certificate stand for, as far as they can be opened here."""
    return read_values(publisher.private, digest) if publisher.private else {}


def _create_proof(
    publisher: Publisher, digest: str, envelope: bytes, inclusion: Inclusion, lock: Lock | None
) -> tuple[StoredObject, Inclusion]:
    """Create the proof; one that is there already, of another checkpoint, is kept if it holds, and else replaced."""
    store, name = publisher.store, proof_name(digest)

    def known(content: bytes | None) -> Inclusion | None:
        return verify_inclusion(envelope, content, publisher.trust).inclusion

    try:
        return store.create(name, inclusion.to_bytes(), lock=lock), inclusion
    except OtherContentError:
        update(store, name, lambda content: None if known(content) else inclusion.to_bytes())
    inclusion = known(store.read(name)) or inclusion
    return store.create(name, inclusion.to_bytes(), lock=lock), inclusion


def _in_order(statement: DeletionStatement) -> list[tuple[str, str]]:
    """Return the files to publish, small ones first."""
    digests = statement.digests
    return sorted(((name, digests[name]) for name in SUBJECTS if name in digests), key=lambda pair: pair[0] == WEIGHTS)


def _move_pointer(publisher: Publisher, name: str, pointer: LatestPointer) -> None:
    """Let a pointer name this certificate, unless it names a later one already, by the log."""

    def moved(content: bytes | None) -> bytes | None:
        later = content is not None and _index_of(publisher, content, name) >= pointer.index
        return None if later else pointer.to_bytes()

    update(publisher.store, name, moved)


def _index_of(publisher: Publisher, content: bytes, name: str) -> int:
    """Return where the log has what a pointer names; -1 if it does not, or if this is no pointer."""
    try:
        there = read_pointer(content, name)
    except DataError:
        return -1
    log = Log(publisher.store, publisher.trust)  # read after the pointer, so it has what any writer has pointed to
    logged = 0 <= there.index < log.size and log.entry(there.index).hex() == there.certificate
    return there.index if logged else -1


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

"""Repairs of the log that need no trust: everything written here follows from the entries and from what was signed.

- a head signed by a key that has been revoked since is signed again, once the whole log has been checked;
- proofs whose checkpoint was signed by such a key are made from the present head;
- missing index objects and claims of entries are written again;
- claims that a killed writer has left are carried out.

Renewing the head is no repair, but what an operator does from time to time: a head shows by its time that nothing later
is being withheld, so readers refuse one that is too old.
"""

from contextlib import suppress
from dataclasses import dataclass

from securesystemslib.signer import Signer

from mbd.errors import DataError, VerificationError
from mbd.formats.layout import proof_name
from mbd.log.append import (
    CheckLeaf,
    check_log_signer,
    complete_claims,
    create_index,
    create_same,
    keep_head,
    open_to_sign,
    sign_checkpoint,
)
from mbd.log.check import check_log
from mbd.log.checkpoint import Checkpoint, Inclusion, verify_checkpoint
from mbd.log.memory import head_of, remember
from mbd.log.reader import Log, read_place
from mbd.log.tiles import CHECKPOINT, claim_name
from mbd.records import now
from mbd.storage.store import ConflictError, LockedError, Store, update
from mbd.trust.trust_file import Trust


@dataclass(frozen=True)
class Repaired:
    """What was repaired."""

    signed_again: bool
    indexed: int
    carried_out: int


def repair_log(store: Store, signer: Signer, trust: Trust, check: CheckLeaf | None = None) -> Repaired:
    """Repair the log; VerificationError if something is damaged that does not follow from the rest."""
    check_log_signer(signer, trust, now())
    signed_again = _sign_again(store, signer, trust)
    log = Log(store, trust)
    indexed = 0
    for place, leaf in log.entries():
        create_same(store, claim_name(place), leaf)
        _renew_proof(log, place, leaf)
        if read_place(store, leaf) is None:
            create_index(store, leaf, place)
            indexed += 1
    return Repaired(signed_again, indexed, complete_claims(store, signer, trust, check))


def _renew_proof(log: Log, place: int, leaf: bytes) -> None:
    """Replace the proof of an entry if its checkpoint is not trusted any more; where it is locked, readers make it."""

    def renewed(proof: bytes | None) -> bytes | None:
        if proof is None or _is_proven(proof, leaf, log.trust) or not _is_proven(proof, leaf, before):
            return None
        return log.inclusion(place, leaf).to_bytes()

    before = log.trust.as_if_none_revoked()
    with suppress(LockedError):
        update(log.store, proof_name(leaf.hex()), renewed)


def _is_proven(proof: bytes, leaf: bytes, trust: Trust) -> bool:
    try:
        Inclusion.from_bytes(proof, "proof of inclusion").verify(leaf, trust)
    except (DataError, VerificationError):
        return False
    return True


def renew_head(store: Store, signer: Signer, trust: Trust) -> Checkpoint | None:
    """Sign the head again with the present time, so that readers know that it is still the newest; return it, if any.

    The head as it was first signed is kept: its time is that of its entries.
    """
    check_log_signer(signer, trust, now())
    log, tag = open_to_sign(store, trust)
    if not log.size:
        return None
    head = log.head
    log.check_root()
    keep_head(store, head)
    remember(log, head_of(log))
    note = sign_checkpoint(head.size, head.root, max(now(), head.time), signer, trust)
    with suppress(ConflictError):  # another writer has moved it, and so has signed a newer one
        store.replace(CHECKPOINT, note.encode(), expected=tag)
    return Log(store, trust).head


def _sign_again(store: Store, signer: Signer, trust: Trust) -> bool:
    """Sign the head again if its key is revoked; return whether that was needed."""
    then = trust.as_if_none_revoked()
    log, tag = open_to_sign(store, then)
    if not log.size or log.head.key.id not in {key.id for key in trust.keys_for("log") if key.revoked}:
        return False
    head = log.head
    report = check_log(store, then)
    wrong = [problem for problem in report.problems if "index" not in problem]
    if wrong or report.checkpoint is None:
        raise VerificationError(
            f"the log cannot be signed again, it is damaged: {'; '.join(wrong)}",
            hint="restore the store from a copy made before the key was lost",
        )
    note = sign_checkpoint(head.size, head.root, max(now(), head.time), signer, trust)
    verify_checkpoint(note, trust)
    store.replace(CHECKPOINT, note.encode(), expected=tag)
    return True

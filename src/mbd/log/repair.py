"""Repairs of the log that need no trust: everything written here follows from the entries and from what was signed.

- a head signed by a key that has been revoked since is signed again, once the whole log has been checked;
- missing index objects and claims of entries are written again;
- claims that a killed writer has left are carried out.

Renewing the head is no repair, but what an operator does from time to time: a head shows by its time that nothing later
is being withheld, so readers refuse one that is too old.
"""

from contextlib import suppress
from dataclasses import dataclass

from securesystemslib.signer import Signer

from mbd.errors import VerificationError
from mbd.log.append import CheckLeaf, complete, create_index, create_same, keep_head
from mbd.log.check import check_log
from mbd.log.checkpoint import Checkpoint, check_log_signer, sign_checkpoint, verify_checkpoint
from mbd.log.reader import Log, read_head, read_place
from mbd.log.tiles import CHECKPOINT, claim_name
from mbd.records import now
from mbd.storage.store import ConflictError, Store
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
        if read_place(store, leaf) is None:
            create_index(store, leaf, place)
            indexed += 1
    return Repaired(signed_again, indexed, complete(store, signer, trust, check))


def renew_head(store: Store, signer: Signer, trust: Trust) -> Checkpoint | None:
    """Sign the head again with the present time, so that readers know that it is still the newest; return it, if any.

    The head as it was first signed is kept: its time is that of its entries.
    """
    check_log_signer(signer, trust, now())
    head, tag = read_head(store, trust)
    if head is None:
        return None
    Log(store, trust, head).check_root()
    keep_head(store, head)
    note = sign_checkpoint(head.size, head.root, max(now(), head.time), signer, trust)
    with suppress(ConflictError):  # another writer has moved it, and so has signed a newer one
        store.replace(CHECKPOINT, note.encode(), expected=tag)
    return Log(store, trust).head


def _sign_again(store: Store, signer: Signer, trust: Trust) -> bool:
    """Sign the head again if its key is revoked; return whether that was needed."""
    then = trust.as_if_none_revoked()
    head, tag = read_head(store, then)
    if head is None or head.key.id not in {key.id for key in trust.keys_for("log") if key.revoked}:
        return False
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

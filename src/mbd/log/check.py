"""Walking the whole log: every hash is computed again from the entries, and compared with what is stored and signed.

Repairs need no trust: everything that they write follows from the entries and from what was signed.

- a head signed by a key that has been revoked since is signed again, once the whole log has been checked;
- proofs whose checkpoint was signed by such a key are made from the present head;
- missing index objects and claims of entries are written again;
- claims that a killed writer has left are carried out.

Renewing the head is no repair, but what an operator does from time to time: a head shows by its time that nothing later
is being withheld, so readers refuse one that is too old.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from securesystemslib.signer import Signer

from mbd.errors import DataError, MbdError, VerificationError
from mbd.formats.layout import proof_name
from mbd.log.append import (
    CheckLeaf,
    check_log_signer,
    complete_claims,
    create_index,
    create_same,
    keep_head,
    open_to_sign,
    read_pending,
    sign_checkpoint,
)
from mbd.log.checkpoint import Checkpoint, Inclusion, verify_checkpoint
from mbd.log.memory import LogMemory, checkpoints_in_proofs, head_of, open_log, read_memory, remember
from mbd.log.merkle import EMPTY, leaf_hash
from mbd.log.reader import Log, read_claim, read_place
from mbd.log.tiles import CHECKPOINT, OLD_CHECKPOINTS, WIDTH, Edge, Tile, claim_name
from mbd.records import now
from mbd.storage.store import ConflictError, LockedError, NotThereError, Store, update
from mbd.trust.trust_file import Trust

_AT_ONCE = 8


@dataclass
class LogReport:
    """What was found in a log."""

    size: int
    checkpoint: Checkpoint | None
    problems: list[str] = field(default_factory=list)
    pending: int = 0
    """entries that are claimed and not carried out yet: the next append does it"""
    old_checkpoints: int = 0
    certificates: int = 0
    """certificates that were read from the store and are those in the log"""


def check_log(
    store: Store,
    trust: Trust,
    *,
    since: Checkpoint | None = None,
    certificate_name: Callable[[str], str] | None = None,
    check: CheckLeaf | None = None,
) -> LogReport:
    """Check all of the log: signatures, every tile, the root, all older checkpoints, claims, index, certificates.

    `since`: a checkpoint that was kept elsewhere, which the log must continue. `certificate_name`: where the
    certificate of a digest lies in the store. `check`: refuses a claim that no append would accept, which keeps the log
    from being written. Only a head that cannot be trusted at all is an error at once.
    """
    log = Log(store, trust)
    report = LogReport(log.size, log.head if log.size else None)
    older = list(_old_checkpoints(store, trust, report))
    report.old_checkpoints = len(older)
    heads = [*older, *([since] if since else []), *([log.head] if log.size else [])]
    try:
        for entries in _walk(log, heads, report):
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for checked in pool.map(partial(_check_entry, store, certificate_name), entries):
                    report.problems += checked.problems
                    report.certificates += checked.certificates
    except MbdError as error:
        report.problems.append(_description(error))
    claimed = read_pending(store, log.size)
    report.pending = len(claimed)
    for place, leaf in enumerate(claimed, start=log.size):
        try:
            if check is not None:
                check(leaf)
        except MbdError as error:
            report.problems.append(f"the claim of place {place} would be refused: {_description(error)}")
    return report


def adopt_log(store: Store, trust: Trust, *, max_age: timedelta | None = None, instead: bool = False) -> Log:
    """Remember a log as the one that this machine signs from now on; it must fit all signed checkpoints in the store.

    Args:
        store: The store.
        trust: Who is trusted; a head that a revoked key has signed can be taken up, to be signed again.
        max_age: How old its head may be. None: any age.
        instead: Forget what was remembered of this log before.

    Raises:
        VerificationError: It is not the newest log that is known here or in the store, or its head is old.
    """
    trust = trust.as_if_none_revoked()
    log, _ = open_log(store, trust, LogMemory() if instead else read_memory(trust))
    report = LogReport(0, None)
    if max_age and log.size and now() - log.head.time > max_age:
        raise VerificationError(
            f"the log's checkpoint is of {log.head.time:%Y-%m-%d %H:%M:%SZ}, older than {max_age.days} days: it may be "
            "an old copy",
            file=store.url,
            hint="compare it with one that was kept elsewhere (`mbd log check --since FILE`), then `mbd log adopt`",
        )
    heads = [*_old_checkpoints(store, trust, report), *checkpoints_in_proofs(store, trust)]
    heads += [log.head] if log.size else []
    deque(_walk(log, heads, report), maxlen=0)
    if report.problems:
        raise VerificationError(
            f"the log is not taken up, for it is not whole: {'; '.join(report.problems)}",
            file=store.url,
            hint="bring the newest copy of the store back; `mbd log check` checks all of it",
        )
    remember(log, head_of(log), instead=instead)
    return log


def _old_checkpoints(store: Store, trust: Trust, report: LogReport) -> Iterator[Checkpoint]:
    trust = trust.as_if_none_revoked()  # what a revoked key has signed must still fit to the rest
    for stored in store.list(OLD_CHECKPOINTS):
        try:
            yield verify_checkpoint(store.read(stored.name).decode(errors="replace"), trust)
        except VerificationError as error:
            report.problems.append(f"{stored.name}: {error.problem}")


def _walk(log: Log, heads: Sequence[Checkpoint], report: LogReport) -> Iterator[list[tuple[int, bytes]]]:
    """Yield the entries, tile by tile; tiles and heads are compared with the tree that grows from them."""
    by_size: dict[int, list[Checkpoint]] = {}
    for head in heads:
        by_size.setdefault(head.size, []).append(head)
    for head in by_size.pop(0, []):
        report.problems += [] if head.root == EMPTY else ["a checkpoint of an empty log has another root"]
    edge = Edge(0, {})
    read: list[tuple[int, bytes]] = []
    for place, leaf in log.entries():
        for tile, content in edge.add(leaf_hash(leaf)):
            _compare(log, tile, content, report)
        for head in by_size.pop(edge.size, []):
            if head.root != edge.root:
                report.problems.append(f"the checkpoint of size {head.size} does not fit to the entries")
        read.append((place, leaf))
        if len(read) == WIDTH:
            yield read
            read = []
    for tile, content in edge.partial_tiles():
        _compare(log, tile, content, report)
    for size in sorted(by_size):
        report.problems.append(f"there is a signed checkpoint of size {size}, and the log has {log.size} entries")
    yield read


def _compare(log: Log, tile: Tile, content: bytes, report: LogReport) -> None:
    try:
        stored = b"".join(log.hashes(tile.level, tile.index))
    except VerificationError as error:
        report.problems.append(_description(error))
        return
    if stored != content:
        report.problems.append(f"{tile.name} does not hold the hashes of the entries")


def _check_entry(store: Store, certificate_name: Callable[[str], str] | None, entry: tuple[int, bytes]) -> LogReport:
    place, leaf = entry
    report = LogReport(0, None)
    try:
        for problem in _claim_and_index(store, place, leaf):
            report.problems.append(problem)
    except MbdError as error:
        report.problems.append(_description(error))
    if certificate_name is not None:
        try:
            store.read(certificate_name(leaf.hex()), sha256=leaf.hex())
            report.certificates = 1
        except MbdError as error:
            report.problems.append(f"certificate of entry {place}: {_description(error)}")
    return report


def _claim_and_index(store: Store, place: int, leaf: bytes) -> Iterator[str]:
    try:
        if read_claim(store, place) != leaf:
            yield f"the claim of place {place} is of another entry"
    except NotThereError:
        yield f"the claim of place {place} is missing"
    indexed = read_place(store, leaf)
    if indexed is None:
        yield f"entry {place} is missing in the index"
    elif indexed != place:
        yield f"entry {place} is the same as entry {indexed}"


def _description(error: MbdError) -> str:
    return f"{error.file}: {error.problem}" if error.file else error.problem


# Repairs


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

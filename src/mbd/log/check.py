"""Walking the whole log: every hash is computed again from the entries, and compared with what is stored and signed."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from mbd.errors import MbdError, VerificationError
from mbd.log.append import pending
from mbd.log.checkpoint import Checkpoint, verify_checkpoint
from mbd.log.merkle import EMPTY, leaf_hash
from mbd.log.reader import Log, read_claim, read_place
from mbd.log.tiles import OLD_CHECKPOINTS, WIDTH, Edge, Tile
from mbd.storage.store import NotThereError, Store
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
    elsewhere: int = 0
    """entries whose certificate is not in this store"""


def check_log(
    store: Store, trust: Trust, *, since: Checkpoint | None = None, certificate_name: Callable[[str], str] | None = None
) -> LogReport:
    """Check all of the log: signatures, every tile, the root, all older checkpoints, claims, index, certificates.

    `since`: a checkpoint that was kept elsewhere, which the log must continue. `certificate_name`: where the
    certificate of a digest lies in the store. Only a head that cannot be trusted at all is an error at once.
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
                    report.elsewhere += checked.elsewhere
    except MbdError as error:
        report.problems.append(_description(error))
    report.pending = len(pending(store, log.size))
    return report


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
    report.problems += _lines(_claim_and_index(store, place, leaf))
    if certificate_name is not None:
        try:
            store.read(certificate_name(leaf.hex()), sha256=leaf.hex())
            report.certificates = 1
        except NotThereError:
            report.elsewhere = 1
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


def _lines(problems: Iterator[str]) -> Iterable[str]:
    try:
        yield from problems
    except MbdError as error:
        yield _description(error)


def _description(error: MbdError) -> str:
    return f"{error.file}: {error.problem}" if error.file else error.problem

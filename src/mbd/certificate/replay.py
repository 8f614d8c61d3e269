"""Replaying the log: from a verified checkpoint to the verified statements that it commits to.

    head           signed by the log's key, and not older or other than one that was seen here before
    entries        the leaves whose Merkle tree hash is the root in the head
    envelopes      `certificates/DIGEST/certificate.json`, whose SHA-256 is the leaf
    statements     what :mod:`mbd.certificate.reader` accepts, at the time at which the log says it was logged

Membership in the tree takes the place of each `proof.json`. The result is cached on this machine, outside the store,
together with the head it was made from: the next replay reads only entries after it, and refuses a log that does not
continue it. Entries that could not be read are tried again.
"""

import gc
import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from mbd.certificate.facts import (
    CertificateFacts,
    EntryFinding,
    RegistrationFacts,
    StatementFacts,
    certificate_facts,
    registration_facts,
    statement_facts,
)
from mbd.certificate.history import History
from mbd.certificate.layout import CERTIFICATES, certificate_name, proof_name
from mbd.certificate.log.append import read_claim
from mbd.certificate.log.checkpoint import verify_checkpoint
from mbd.certificate.log.hashing import EMPTY, leaf_hash
from mbd.certificate.log.inclusion import Inclusion
from mbd.certificate.log.proof import consistency_proof, is_consistent
from mbd.certificate.log.reader import Log
from mbd.certificate.log.tiles import CHECKPOINT, OLD_CHECKPOINTS, WIDTH, Edge, node_in
from mbd.certificate.reader import is_void, verify_logged
from mbd.certificate.trust import Logged, Trust
from mbd.certificate.verdict import problems_of
from mbd.errors import DataError, VerificationError
from mbd.files import canonical_digest, write_file
from mbd.formats.statement import (
    PROOF,
    AnyStatement,
    DeletionStatement,
    RegistrationStatement,
    subject_certificates,
)
from mbd.storage.store import Store

_THREADS = 16
_PART = 16  # entries that a thread or a process takes at once
_MANY = 1000  # entries from which on it pays to start processes
_log = logging.getLogger(__name__)

T = TypeVar("T")
Bytes = Annotated[bytes, PlainSerializer(lambda data: data.hex(), str), PlainValidator(bytes.fromhex)]


def read_history(store: Store, trust: Trust, *, cached: bool = True) -> History:
    """Return everything that the log of a store says; see :meth:`LogReplay.read`.

    Args:
        store: The store.
        trust: Who is trusted.
        cached: Whether to use the cache on this machine.

    """
    return LogReplay(store, cached=cached).read(trust)


def is_remembered(store: Store, trust: Trust) -> bool:
    """Return whether the log of a store was read on this machine before, so that an older copy of it is refused."""
    known = _read_cache(cache_file(store, trust))
    return known is not None and known.seen.size > 0


def check_memory(store: Store, trust: Trust) -> None:
    """Refuse a log that does not continue the one that was read on this machine before; remember nothing new.

    Raises:
        VerificationError: It is older, or was rewritten.

    """
    known, log = _read_cache(cache_file(store, trust)) or _Replayed(), Log(store, trust)
    if problem := _rolled_back(log, known, store, trust):
        raise problem
    if known.seen.size:
        proof = consistency_proof(node_in(log.hashes), known.seen.size, log.size)
        if not is_consistent(known.seen.size, known.seen.root, log.size, log.head.root, proof):
            raise _rewritten(known.seen)


@dataclass(frozen=True)
class _Seen:
    """A head that was seen here."""

    size: int = 0
    root: Bytes = EMPTY


@dataclass(frozen=True)
class _Replayed:
    """The content of the cache."""

    seen: _Seen = _Seen()
    """the newest head"""
    trust: str = ""
    """SHA-256 of the trust that the entries were verified with"""
    size: int = 0
    """how many entries were read, all of which could be"""
    edge: dict[int, list[Bytes]] = field(default_factory=dict)
    """hashes of the partial tiles of this size, by level"""
    certificates: list[CertificateFacts] = field(default_factory=list)
    registrations: list[RegistrationFacts] = field(default_factory=list)
    statements: list[StatementFacts] = field(default_factory=list)
    findings: list[EntryFinding] = field(default_factory=list)


class LogReplay:
    """Replays the log of a store, again and again, and reads only what is new."""

    def __init__(self, store: Store, *, cached: bool, processes: int = 1) -> None:
        """Replay the log of a store; many new entries are verified by so many processes."""
        self._store, self._cached, self._processes = store, cached, processes
        self._known: _Replayed | None = None

    def read(self, trust: Trust, pause: Callable[[], None] = lambda: None) -> History:
        """Return everything that the log says.

        Args:
            trust: Who is trusted. What was read with another trust file serves only to recognise the log.
            pause: Called between blocks of entries; it may raise to end the replay.

        Raises:
            VerificationError: The log cannot be trusted: its head is not signed or missing, its entries are not those
                of the head, or it is not a continuation of the log that was seen here before.

        """
        file = cache_file(self._store, trust) if self._cached else None
        known = self._known or _read_cache(file) or _Replayed()
        log = Log(self._store, trust)
        while problem := _rolled_back(log, known, self._store, trust):
            newer = Log(self._store, trust)
            if newer.size <= log.size:  # else it has grown in the meantime
                raise problem
            log = newer
        entries = _Entries(self._store, trust, log, known)
        entries.read_all(pause, self._processes)
        self._known = known
        if log.size and (entries.read or log.size > known.seen.size):
            self._known = entries.to_cache(known)
            _write_cache(file, self._known)
        return entries.history()


_CACHE = TypeAdapter(_Replayed)


def _rolled_back(log: Log, known: _Replayed, store: Store, trust: Trust) -> VerificationError | None:
    """Return the error for a head that is older than another one; None if there is no sign of that.

    Another head is known from an earlier replay, or from a proof in the store. The place after the head is claimed only
    while a writer is at work: if the entry that claimed it has a proof, it was logged.
    """
    hint = "an older copy of the store or of its checkpoint is served: do not trust it, and bring the newest one back"
    if log.size < known.seen.size:
        problem = f"it had {known.seen.size} entries when it was read here before, now {log.size}"
    elif (later := _size_in_proof(log, store, trust)) > log.size:
        problem = f"a signed checkpoint has {later} entries, and its head {log.size}"
    elif not log.size and _was_logged(store, trust):
        problem = "it has no checkpoint, and something was logged before"
        hint = "bring the object back from a copy of the store; `mbd log repair` makes it from the entries"
    else:
        return None
    return VerificationError(f"the log has shrunk: {problem}", file=CHECKPOINT, hint=hint)


def _size_in_proof(log: Log, store: Store, trust: Trust) -> int:
    """Return the size of the log in the proof of the entry that has claimed the place after the head; 0 without one."""
    try:
        return _tree_size(store, read_claim(store, log.size), trust)
    except (DataError, VerificationError):
        return 0


def _tree_size(store: Store, leaf: bytes, trust: Trust) -> int:
    """Return the size of the log in the proof that a leaf has in the store."""
    proof = Inclusion.from_bytes(store.read(proof_name(leaf.hex())), "proof of inclusion")
    proof.verify(leaf, trust)
    return proof.tree_size


def _was_logged(store: Store, trust: Trust) -> bool:
    """Return whether there are proofs or older heads that the log has signed; they are written only after a head."""
    for stored in store.list(f"{CERTIFICATES}/"):
        with suppress(DataError, VerificationError, ValueError):
            if stored.name.endswith(f"/{PROOF}") and _tree_size(store, bytes.fromhex(stored.name.split("/")[1]), trust):
                return True
    for stored in store.list(OLD_CHECKPOINTS):
        with suppress(DataError, VerificationError):
            verify_checkpoint(store.read(stored.name).decode(errors="replace"), trust)
            return True
    return False


class _Entries:
    """Reads the entries of a log that the cache lacks, and keeps what is needed of them."""

    def __init__(self, store: Store, trust: Trust, log: Log, known: _Replayed) -> None:
        self._store, self._trust, self._log = store, trust, log
        self._seen, self._digest = known.seen, canonical_digest(trust.to_plain())
        start = known if known.trust == self._digest else _Replayed()
        self._edge = Edge(start.size, start.edge)
        self._certificates = {one.digest: one for one in start.certificates}
        self._registrations = {one.digest: one for one in start.registrations}
        self._statements, self._findings = list(start.statements), list(start.findings)
        self.read = 0

    def read_all(self, pause: Callable[[], None], processes: int) -> None:
        """Read all entries up to the head; VerificationError if they do not lead to its root."""
        entries = self._log.entries(self._edge.size)
        many = self._log.size - self._edge.size >= _MANY
        with ThreadPoolExecutor(_THREADS) as readers, _judges(self._trust, processes if many else 1) as judged:
            waiting = deque[Iterable[_Judged]]()
            while block := list(islice(entries, WIDTH)):
                pause()
                for _, leaf in block:
                    self._grow(leaf)
                waiting.append(judged(self._fetch_all(block, readers)))
                if len(waiting) > 1:  # so that a block is read while the one before it is verified
                    self._keep(waiting.popleft())
            for found in waiting:
                self._keep(found)
        if self._log.size and self._edge.root != self._log.head.root:
            raise _rewritten(self._seen) if self._seen.size else _damaged()

    def history(self) -> History:
        """Return what all entries say."""
        head = self._log.head if self._log.size else None
        findings = tuple(self._findings)
        statements = tuple(self._statements)
        return History(
            self._store, head, self._certificates, statements, findings, self.read, registrations=self._registrations
        )

    def to_cache(self, known: _Replayed) -> _Replayed:
        """Return what to keep for the next time; where entries could not be read, what was known before."""
        seen = _Seen(self._edge.size, self._edge.root)
        if any(one.blocks for one in self._findings):
            return replace(known, seen=seen)
        return _Replayed(
            seen=seen,
            trust=self._digest,
            size=self._edge.size,
            edge=self._edge.partial,
            certificates=list(self._certificates.values()),
            registrations=list(self._registrations.values()),
            statements=self._statements,
            findings=self._findings,
        )

    def _grow(self, leaf: bytes) -> None:
        deque(self._edge.add(leaf_hash(leaf)), maxlen=0)
        if self._edge.size == self._seen.size and self._edge.root != self._seen.root:
            raise _rewritten(self._seen)

    def _fetch_all(self, block: list[tuple[int, bytes]], readers: ThreadPoolExecutor) -> list["_Fetched"]:
        """Return the envelopes of entries; every thread reads a part of them."""
        parts = [block[start : start + _PART] for start in range(0, len(block), _PART)]

        def each(work: Callable[[tuple[int, bytes]], T]) -> Iterator[T]:
            return chain.from_iterable(readers.map(lambda part: [work(entry) for entry in part], parts))

        deque(each(lambda entry: self._log.kept_checkpoint(entry[0] + 1)), maxlen=0)  # several entries need the same
        return list(each(self._fetch))

    def _fetch(self, entry: tuple[int, bytes]) -> "_Fetched":
        """Return the envelope of an entry, or why there is none."""
        index, digest = entry[0], entry[1].hex()
        try:
            data = self._store.read(certificate_name(digest), sha256=digest)
        except (DataError, VerificationError) as error:
            return _Fetched(index, digest, EntryFinding(index, digest, error.problem, blocks=True))
        return _Fetched(index, digest, data, Logged(index, self._log.first_checkpoint_with(index).time))

    def _keep(self, found: Iterable["_Judged"]) -> None:
        for one in found:
            self.read += 1
            index, digest, said = one.index, one.digest, one.said
            if isinstance(said, EntryFinding):
                self._findings.append(said)
            elif isinstance(said, CertificateFacts):
                self._certificates.setdefault(digest, said)
            elif isinstance(said, RegistrationFacts):
                self._registrations.setdefault(digest, said)
            if one.statement is not None:
                for about in subject_certificates(one.statement):
                    certificate = self._certificates.get(about)
                    self._statements.append(statement_facts(index, digest, one.statement, about, certificate))


@dataclass(frozen=True)
class _Fetched:
    """An entry and its envelope, or why there is none."""

    index: int
    digest: str
    data: bytes | EntryFinding
    logged: Logged | None = None


@dataclass(frozen=True)
class _Judged:
    """What is kept of an entry."""

    index: int
    digest: str
    said: EntryFinding | CertificateFacts | RegistrationFacts | None = None
    statement: AnyStatement | None = None
    """one about certificates"""


def _judge(trust: Trust, entry: _Fetched) -> _Judged:
    """Make all steps of verification for an entry; return what is kept of its statement, or why there is none."""
    index, digest, logged = entry.index, entry.digest, entry.logged
    if isinstance(entry.data, EntryFinding) or logged is None:
        return _Judged(index, digest, entry.data if isinstance(entry.data, EntryFinding) else None)
    found = verify_logged(entry.data, trust, logged)
    if problem := next(iter(problems_of(found.checks)), None):
        reason = f"{problem.name}: {problem.reason}"
        return _Judged(index, digest, EntryFinding(index, digest, reason, blocks=not is_void(found, trust, index)))
    statement = found.require()
    said: CertificateFacts | RegistrationFacts | None = None
    if isinstance(statement, DeletionStatement):
        said = certificate_facts(index, digest, statement)
    elif isinstance(statement, RegistrationStatement):
        said = registration_facts(index, digest, statement)
    return _Judged(index, digest, said, statement if subject_certificates(statement) else None)


@contextmanager
def _judges(trust: Trust, processes: int) -> Iterator[Callable[[list[_Fetched]], Iterable[_Judged]]]:
    """Within: a function that verifies entries, in several processes if there are to be any."""
    judge = partial(_judge, trust)
    if processes == 1:
        yield lambda entries: map(judge, entries)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=gc.disable) as pool:
        yield lambda entries: pool.map(judge, entries, chunksize=_PART)


def _rewritten(seen: _Seen) -> VerificationError:
    return VerificationError(
        f"the log has been rewritten: its first {seen.size} entries are not those that were read here before",
        hint="two signed checkpoints contradict each other: do not trust this log, and show both to other verifiers",
    )


def _damaged() -> VerificationError:
    return VerificationError(
        "the log is damaged: its entries do not lead to the root that is signed",
        hint="`mbd log check` finds all damage; restore the object from a copy of the store",
    )


# The cache


def cache_file(store: Store, trust: Trust) -> Path | None:
    """Return where the history of a store's log is cached on this machine; None where there is no place for it."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    name = hashlib.sha256(f"{trust.log_origin}\n{store.url}".encode()).hexdigest()
    return folder / "missing-by-design" / "history" / f"{name}.json"


def _read_cache(file: Path | None) -> _Replayed | None:
    try:
        return _CACHE.validate_json(file.read_bytes()) if file else None
    except OSError:
        return None
    except ValidationError:
        _log.warning("the cache of the log's history is not readable, so the whole log is read again: %s", file)
        return None


def _write_cache(file: Path | None, replayed: _Replayed) -> None:
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, _CACHE.dump_json(replayed), mode=0o600)
    except OSError as error:
        _log.debug("the log's history is not cached: %s", error)

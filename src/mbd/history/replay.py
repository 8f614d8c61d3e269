"""Replaying the log: from a verified checkpoint to the verified statements that it commits to.

    head           signed by the log's key, and not older or other than one that was seen here before
    entries        the leaves whose Merkle tree hash is the root in the head
    envelopes      `certificates/DIGEST/certificate.json`, whose SHA-256 is the leaf
    statements     what :mod:`mbd.verifier.reader` accepts, at the time at which the log says it was logged

Membership in the tree takes the place of each `proof.json`. The result is kept in the cache folder (:class:`Memory`),
and the next replay reads only entries after it. What is kept decides nothing: it serves for the log whose first entries
have the same hashes, and is made again for another. A log that is older than the one that was read here before, or does
not continue it, is refused (:mod:`mbd.log.memory`). Entries that could not be read are tried again.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from mbd.errors import DataError, VerificationError
from mbd.files import canonical_digest, write_file
from mbd.formats.layout import certificate_name
from mbd.formats.statement import AnyStatement, DeletionStatement, RegistrationStatement, subject_certificates
from mbd.formats.verdict import Decision
from mbd.history.facts import (
    CertificateFacts,
    EntryFinding,
    RegistrationFacts,
    StatementFacts,
    certificate_facts,
    registration_facts,
    statement_facts,
)
from mbd.history.history import History
from mbd.log.memory import Head, LogMemory, cache_folder, head_of, location, open_log, read_memory, remember
from mbd.log.merkle import leaf_hash
from mbd.log.reader import Log
from mbd.log.tiles import WIDTH, Edge
from mbd.storage.store import Store
from mbd.trust.trust_file import Logged, Trust
from mbd.verifier.reader import is_void, verify_logged
from mbd.verifier.verdict import decide, problems_of

_THREADS = 16
_LOG = logging.getLogger(__name__)


Bytes = Annotated[bytes, PlainSerializer(lambda data: data.hex(), str), PlainValidator(bytes.fromhex)]


@dataclass(frozen=True)
class Memory:
    """What was kept of one log; by default, nothing."""

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


@cache
def _form() -> TypeAdapter[Memory]:
    return TypeAdapter(Memory)


def cache_file(url: str, trust: Trust) -> Path | None:
    """Return the file of what was kept of the log in a store; None where there is no place for it."""
    name = hashlib.sha256(f"{trust.log_origin}\n{location(url)}".encode()).hexdigest()
    folder = cache_folder()
    return folder / "history" / f"{name}.json" if folder else None


def _read_kept(file: Path | None) -> Memory:
    """Return what a file keeps: nothing if there is none, or none that is readable."""
    try:
        return _form().validate_json(file.read_bytes()) if file else Memory()
    except OSError:
        return Memory()
    except ValidationError:
        _LOG.warning("the cache of the log's history is not readable, so the whole log is read again: %s", file)
        return Memory()


def _write_kept(file: Path | None, memory: Memory) -> None:
    """Replace what a file keeps; where it cannot be written, the next replay reads more."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, _form().dump_json(memory), mode=0o600)
    except OSError as error:
        _LOG.debug("the log's history is not cached: %s", error)


def read_history(store: Store, trust: Trust, *, cached: bool = True) -> History:
    """Return everything that the log of a store says; see :meth:`LogReplay.read`.

    Args:
        store: The store.
        trust: Who is trusted.
        cached: Whether to use the cache on this machine.

    """
    return LogReplay(store, cached=cached).read(trust)


class LogReplay:
    """Replays the log of a store, again and again, and reads only what is new."""

    def __init__(self, store: Store, *, cached: bool) -> None:
        self._store, self._cached = store, cached
        self._known: Memory | None = None
        self._seen = LogMemory()

    def read(self, trust: Trust, pause: Callable[[], None] = lambda: None) -> History:
        """Return everything that the log says.

        Args:
            trust: Who is trusted. What was read with another trust file serves only to recognise the log.
            pause: Called between blocks of entries; it may raise to end the replay.

        Raises:
            VerificationError: The log cannot be trusted: its head is not signed or missing, its entries are not those
                of the head, or it is not a continuation of the log that was seen here before.

        """
        memory = read_memory(trust) if self._cached else LogMemory()
        log, _ = open_log(self._store, trust, max(memory, self._seen, key=lambda known: known.seen.size))
        file = cache_file(self._store.url, trust) if self._cached else None
        known = self._known or _read_kept(file)
        entries = _Entries(self._store, trust, log, known)
        whole = entries.read_all(pause)
        if not whole and known.size:  # what was kept may be of another log, which counts here no longer
            known = Memory()
            entries = _Entries(self._store, trust, log, known)
            whole = entries.read_all(pause)
        if not whole:
            raise _damaged()
        self._known, self._seen = known, LogMemory(seen=head_of(log), url=location(self._store.url))
        if entries.read and not entries.blocked:
            self._known = entries.to_cache()
            _write_kept(file, self._known)
        if self._cached:
            remember(log)
        return entries.history()


class _Entries:
    """Reads the entries of a log that the cache lacks, and keeps what is needed of them."""

    def __init__(self, store: Store, trust: Trust, log: Log, known: Memory) -> None:
        self._store, self._trust, self._log = store, trust, log
        self._digest = canonical_digest(trust.to_plain())
        start = known if known.trust == self._digest else Memory()
        self._edge = Edge(start.size, start.edge)
        self._certificates = {c.digest: c for c in start.certificates}
        self._registrations = {r.digest: r for r in start.registrations}
        self._statements, self._findings = list(start.statements), list(start.findings)
        self.read = 0

    def read_all(self, pause: Callable[[], None]) -> bool:
        """Read all entries up to the head; return whether they lead to its root."""
        entries = self._log.entries(self._edge.size)
        with ThreadPoolExecutor(_THREADS) as readers:
            while block := list(islice(entries, WIDTH)):
                pause()
                for _, leaf in block:
                    deque(self._edge.add(leaf_hash(leaf)), maxlen=0)
                # Several entries have the same checkpoint: each is read once, before the envelopes.
                deque(readers.map(self._log.kept_checkpoint, (index + 1 for index, _ in block)), maxlen=0)
                for entry in readers.map(self._fetch, block):  # others are read while one is verified
                    self._keep(_judge(self._trust, entry))
        return head_of(self._log) == Head(size=self._edge.size, root=self._edge.root.hex())

    def history(self) -> History:
        """Return what all entries say."""
        head = self._log.head if self._log.size else None
        findings = tuple(self._findings)
        statements = tuple(self._statements)
        return History(
            self._store, head, self._certificates, statements, findings, self.read, registrations=self._registrations
        )

    @property
    def blocked(self) -> bool:
        """Whether an entry could not be read: it is tried again the next time."""
        return any(finding.blocks for finding in self._findings)

    def to_cache(self) -> Memory:
        """Return what to keep for the next time."""
        return Memory(
            trust=self._digest,
            size=self._edge.size,
            edge=self._edge.partial,
            certificates=list(self._certificates.values()),
            registrations=list(self._registrations.values()),
            statements=self._statements,
            findings=self._findings,
        )

    def _fetch(self, entry: tuple[int, bytes]) -> "_Fetched":
        """Return the envelope of an entry, or why there is none."""
        index, digest = entry[0], entry[1].hex()
        try:
            data = self._store.read(certificate_name(digest), sha256=digest)
        except (DataError, VerificationError) as error:
            verdict: Decision = "forged or damaged" if isinstance(error, VerificationError) else "not verified"
            return _Fetched(index, digest, EntryFinding(index, digest, error.problem, blocks=True, verdict=verdict))
        return _Fetched(index, digest, data, Logged(index, self._log.first_checkpoint_with(index).time))

    def _keep(self, entry: "_Judged") -> None:
        self.read += 1
        if isinstance(entry.facts, EntryFinding):
            self._findings.append(entry.facts)
        elif isinstance(entry.facts, CertificateFacts):
            self._certificates.setdefault(entry.digest, entry.facts)
        elif isinstance(entry.facts, RegistrationFacts):
            self._registrations.setdefault(entry.digest, entry.facts)
        if entry.statement is not None:
            for about in subject_certificates(entry.statement):
                certificate = self._certificates.get(about)
                facts = statement_facts(entry.index, entry.digest, entry.statement, about, certificate)
                self._statements.append(facts)


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
    facts: EntryFinding | CertificateFacts | RegistrationFacts | None = None
    statement: AnyStatement | None = None
    """one about certificates"""


def _judge(trust: Trust, entry: _Fetched) -> _Judged:
    """Make all steps of verification for an entry; return what is kept of its statement, or why there is none."""
    index, digest, logged = entry.index, entry.digest, entry.logged
    if isinstance(entry.data, EntryFinding) or logged is None:
        return _Judged(index, digest, entry.data if isinstance(entry.data, EntryFinding) else None)
    verified = verify_logged(entry.data, trust, logged)
    if problem := next(iter(problems_of(verified.checks)), None):
        reason, blocks = f"{problem.name}: {problem.reason}", not is_void(verified, trust, index)
        return _Judged(index, digest, EntryFinding(index, digest, reason, blocks, decide([problem])))
    statement = verified.require()
    facts: CertificateFacts | RegistrationFacts | None = None
    if isinstance(statement, DeletionStatement):
        facts = certificate_facts(index, digest, statement)
    elif isinstance(statement, RegistrationStatement):
        facts = registration_facts(index, digest, statement)
    return _Judged(index, digest, facts, statement if subject_certificates(statement) else None)


def _damaged() -> VerificationError:
    return VerificationError(
        "the log is damaged: its entries do not lead to the root that is signed",
        hint="`mbd log check` finds all damage; restore the object from a copy of the store",
    )


def list_lost_entries(log: Log, trust: Trust) -> list[str]:
    """Say which entries are lost, of those that were read here before, if this log is the one that counts."""
    kept = _read_kept(cache_file(read_memory(trust).url, trust))
    entries = {c.index: (c.digest, f"certificate of {c.model}, {', '.join(c.modalities)}") for c in kept.certificates}
    entries |= {r.index: (r.digest, f"registration of {r.model}") for r in kept.registrations}
    entries |= {s.index: (s.digest, f"{s.kind} of {s.about[:16]}") for s in kept.statements if s.index not in entries}
    return [
        f"entry {index}: {digest[:16]}, {what}"
        for index, (digest, what) in sorted(entries.items())
        if index >= log.size or log.entry(index).hex() != digest
    ]

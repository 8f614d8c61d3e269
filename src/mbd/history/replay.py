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
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from mbd.errors import DataError, VerificationError
from mbd.files import write_file
from mbd.formats.layout import certificate_name
from mbd.formats.statement import DeletionStatement, RegistrationStatement, subject_certificates
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


@dataclass
class Memory:
    """What was kept of one log; by default, nothing."""

    trust: str = ""
    """SHA-256 of the trust that the entries were verified with"""
    size: int = 0
    """how many entries were read, all of which could be"""
    edge: dict[int, list[Bytes]] = field(default_factory=dict)
    """hashes of the partial tiles of this size, by level"""
    certificates: dict[str, CertificateFacts] = field(default_factory=dict)
    """by digest"""
    registrations: dict[str, RegistrationFacts] = field(default_factory=dict)
    """by digest"""
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


def read_kept(file: Path | None) -> Memory:
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
        known = self._known or read_kept(file)
        start = known if known.trust == trust.digest else Memory()
        kept, read = _replay(self._store, trust, log, start, pause)
        if not _leads_to_root(kept, log) and known.size:  # what was kept may be of a log that counts here no longer
            known = Memory()
            kept, read = _replay(self._store, trust, log, known, pause)
        if not _leads_to_root(kept, log):
            raise VerificationError(
                "the log is damaged: its entries do not lead to the root that is signed",
                hint="`mbd log check` finds all damage; restore the object from a copy of the store",
            )
        history = History(
            self._store,
            log.head if log.size else None,
            kept.certificates,
            tuple(kept.statements),
            tuple(kept.findings),
            read,
            registrations=kept.registrations,
        )
        self._known, self._seen = known, LogMemory(seen=head_of(log), url=location(self._store.url))
        if read and not history.blocking:  # entries that could not be read are tried again the next time
            self._known = kept
            _write_kept(file, kept)
        if self._cached:
            remember(log)
        return history


def _leads_to_root(kept: Memory, log: Log) -> bool:
    return head_of(log) == Head(size=kept.size, root=Edge(kept.size, kept.edge).root.hex())


def _replay(store: Store, trust: Trust, log: Log, start: Memory, pause: Callable[[], None]) -> tuple[Memory, int]:
    """Read the entries that `start` lacks; return what is kept of all of them, and how many were read."""

    def fetch(entry: tuple[int, bytes]) -> tuple[bytes, Logged] | EntryFinding:
        """Return the envelope of an entry, and when it was logged; or why there is none."""
        index, digest = entry[0], entry[1].hex()
        try:
            data = store.read(certificate_name(digest), sha256=digest)
        except (DataError, VerificationError) as error:
            verdict: Decision = "forged or damaged" if isinstance(error, VerificationError) else "not verified"
            return EntryFinding(index, digest, error.problem, blocks=True, verdict=verdict)
        return data, Logged(index, log.first_checkpoint_with(index).time)

    copies = {name: copy(getattr(start, name)) for name in ("certificates", "registrations", "statements", "findings")}
    kept = Memory(**copies)
    edge, entries = Edge(start.size, start.edge), log.entries(start.size)
    with ThreadPoolExecutor(_THREADS) as readers:
        while block := list(islice(entries, WIDTH)):
            pause()
            for _, leaf in block:
                deque(edge.add(leaf_hash(leaf)), maxlen=0)
            # Several entries have the same checkpoint: each is read once, before the envelopes.
            deque(readers.map(log.kept_checkpoint, (index + 1 for index, _ in block)), maxlen=0)
            for (index, leaf), fetched in zip(block, readers.map(fetch, block), strict=True):
                _keep(kept, trust, index, leaf.hex(), fetched)  # others are read while one is verified
    kept.trust, kept.size, kept.edge = trust.digest, edge.size, edge.partial
    return kept, edge.size - start.size


def _keep(kept: Memory, trust: Trust, index: int, digest: str, fetched: tuple[bytes, Logged] | EntryFinding) -> None:
    """Make all steps of verification for an entry; keep the facts of its statement, or why it does not count."""
    if isinstance(fetched, EntryFinding):
        kept.findings.append(fetched)
        return
    verified = verify_logged(fetched[0], trust, fetched[1])
    if problem := next(iter(problems_of(verified.checks)), None):
        reason, blocks = f"{problem.name}: {problem.reason}", not is_void(verified, trust, index)
        kept.findings.append(EntryFinding(index, digest, reason, blocks, decide([problem])))
        return
    statement = verified.require()
    if isinstance(statement, DeletionStatement):
        kept.certificates.setdefault(digest, certificate_facts(index, digest, statement))
    elif isinstance(statement, RegistrationStatement):
        kept.registrations.setdefault(digest, registration_facts(index, digest, statement))
    for about in subject_certificates(statement):
        certificate = kept.certificates.get(about)
        kept.statements.append(statement_facts(index, digest, statement, about, certificate))

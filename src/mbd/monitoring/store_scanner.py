"""Scan a store repeatedly, reading only what has changed.

A scan lists the store and reads the objects whose size or modification time has changed since the last scan.
Certificates, statements and their proofs are verified when they are read (digest, signatures, inclusion in the log),
and again only if the object or the trust file changes. The log must be consistent with the log of the previous scan. A
request only ever grows, so a change always shows in its size.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from mbd.certificate.layout import CERTIFICATES, TOMBSTONES, object_name
from mbd.certificate.log.checkpoint import Checkpoint
from mbd.certificate.log.reader import Log, read_head
from mbd.certificate.reader import read_published
from mbd.certificate.trust import Trust, read_trust
from mbd.errors import DataError, VerificationError
from mbd.formats.leakage import LeakageRecord
from mbd.formats.request import DeletionRequest
from mbd.formats.statement import DeletionStatement, ReauditStatement
from mbd.monitoring.facts import (
    CertificateFacts,
    InvalidEntry,
    RequestFacts,
    StatementFacts,
    facts_of,
    facts_of_request,
)
from mbd.requests.request_store import PREFIX as REQUESTS
from mbd.storage import folder_of
from mbd.storage.store import Store, StoredObject, StoreError

_THREADS = 8
_BATCH = 256

Fact = TypeVar("Fact")
Fingerprint = tuple[tuple[str, int, float], ...]
"""name, size and modification time of the objects that a fact was read from"""


class ScanStoppedError(Exception):
    """The scan was cancelled."""


@dataclass(frozen=True)
class StoreSnapshot:
    """The result of one scan."""

    certificates: Mapping[str, CertificateFacts | StatementFacts | InvalidEntry]
    """by digest"""
    requests: Mapping[str, RequestFacts | InvalidEntry]
    log: Checkpoint | None
    log_problem: str | None
    tombstones: int
    resurrected: int
    """number of purged files that are in the store again"""
    read: int
    """number of objects that were read"""


@dataclass
class _Cache(Generic[Fact]):
    """Facts, with the fingerprint of the objects that they were read from."""

    read: Callable[[str], Fact]
    facts: dict[str, tuple[Fingerprint, Fact]] = field(default_factory=dict)

    def refresh(self, listed: Mapping[str, Fingerprint], stopped: Callable[[], bool]) -> int:
        """Drop what is gone, read what is new or changed; return the number of objects read."""
        for gone in self.facts.keys() - listed.keys():
            del self.facts[gone]
        new = [name for name, found in listed.items() if name not in self.facts or self.facts[name][0] != found]
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, len(new), _BATCH):
                if stopped():
                    raise ScanStoppedError
                some = new[start : start + _BATCH]
                for name, fact in zip(some, pool.map(self.read, some), strict=True):
                    self.facts[name] = listed[name], fact
        return len(new)

    def __iter__(self) -> Iterator[tuple[str, Fact]]:
        return ((name, fact) for name, (_, fact) in self.facts.items())


class StoreScanner:
    """Scans one store, and remembers what it has verified."""

    def __init__(self, store: Store, trust_file: Path) -> None:
        self._store, self._trust_file = store, trust_file
        self._trust: Trust | None = None
        self._certificates = _Cache(self._read_certificate)
        self._requests = _Cache(self._read_request)
        self._head: Checkpoint | None = None
        self._seen = False

    def scan(self, stopped: Callable[[], bool] = lambda: False) -> StoreSnapshot:
        """Scan the store.

        Args:
            stopped: asked between batches of reads; the scan is cancelled once it returns true.

        Raises:
            ScanStoppedError: the scan was cancelled; what it has read is kept for the next one.
            StoreError: the store is unreachable, missing or suddenly empty.

        """
        self._check_trust()
        self._check_there()
        listed = _by_digest(self._store.list(f"{CERTIFICATES}/"))
        requests = {stored.name: (_fingerprint(stored),) for stored in self._store.list(REQUESTS)}
        head, problem = self._check_log()
        read = self._certificates.refresh(listed, stopped) + self._requests.refresh(requests, stopped)
        tombstones = self._tombstones()
        return StoreSnapshot(
            certificates=dict(self._certificates),
            requests=dict(self._requests),
            log=head,
            log_problem=problem,
            tombstones=len(tombstones),
            resurrected=self._resurrected(tombstones),
            read=read,
        )

    def leakage(self, digest: str) -> LeakageRecord | None:
        """Return the leakage record of a certificate or a re-audit; None if there is none."""
        try:
            statement = read_published(self._store, digest, self._current_trust).require()
        except (VerificationError, DataError):
            return None  # changed since it was listed: the next scan counts it as invalid
        if isinstance(statement, DeletionStatement):
            return statement.predicate.evidence.leakage
        return statement.predicate.leakage if isinstance(statement, ReauditStatement) else None

    def _check_trust(self) -> None:
        """Read the trust file; if it has changed, everything is verified again."""
        trust = read_trust(self._trust_file)
        if self._trust is not None and trust != self._trust:
            self._certificates.facts.clear()
        self._trust = trust

    def _check_there(self) -> None:
        """Distinguish a store that is missing or suddenly empty from one in which nothing was published yet."""
        url, empty = self._store.url, next(self._store.list(), None) is None
        if url.startswith("file://") and not folder_of(url).is_dir():
            raise StoreError(
                f"the folder of the store does not exist: {url}", hint="check store.url, and that the volume is mounted"
            )
        if empty and self._seen:
            raise StoreError(f"the store is empty, but was not before: {url}", hint="check that the volume is mounted")
        self._seen = not empty

    def _check_log(self) -> tuple[Checkpoint | None, str | None]:
        """Return the newest verified checkpoint, and the problem with the log (None: there is none)."""
        trust = self._current_trust
        try:
            head, _ = read_head(self._store, trust)
            if self._head is not None:
                if head is None:
                    return self._head, "the checkpoint of the log is missing"
                Log(self._store, trust, head).consistency(self._head)
        except (VerificationError, DataError) as error:
            return self._head, error.problem
        self._head = head
        return head, None

    def _read_certificate(self, digest: str) -> CertificateFacts | StatementFacts | InvalidEntry:
        try:
            return facts_of(digest, read_published(self._store, digest, self._current_trust).require())
        except (VerificationError, DataError) as error:
            return InvalidEntry(error.problem)

    def _read_request(self, name: str) -> RequestFacts | InvalidEntry:
        try:
            return facts_of_request(DeletionRequest.from_bytes(self._store.read(name), "request", file=name))
        except DataError as error:
            return InvalidEntry(str(error))

    def _tombstones(self) -> set[str]:
        return {stored.name.rpartition("/")[2] for stored in self._store.list(f"{TOMBSTONES}/sha256/")}

    def _resurrected(self, tombstones: set[str]) -> int:
        if not tombstones:
            return 0
        kept = itertools.chain(self._store.list(object_name("")), self._store.list("batches/files/"))
        return len(tombstones & {stored.name.rpartition("/")[2] for stored in kept})

    @property
    def _current_trust(self) -> Trust:
        if self._trust is None:
            self._check_trust()
        assert self._trust is not None  # noqa: S101 -- it was just read
        return self._trust


def _by_digest(listed: Iterator[StoredObject]) -> dict[str, Fingerprint]:
    """Return the fingerprint of each published envelope: that of the envelope and of its proof."""
    found: dict[str, Fingerprint] = {}
    for stored in listed:
        digest = stored.name.split("/")[1]
        found[digest] = (*found.get(digest, ()), _fingerprint(stored))
    return found


def _fingerprint(stored: StoredObject) -> tuple[str, int, float]:
    file = stored.name.rpartition("/")[2]
    return file, stored.size, stored.modified.timestamp() if stored.modified else 0.0

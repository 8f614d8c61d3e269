"""Looking through a store, again and again, at the price of what is new.

A look lists the store and reads only objects whose size or time has changed since the last one: certificates and the
statements about them, with their proofs, are verified when they are read (digest, signatures, place in the log), and
never again unless the object or the trust file changes. The log must continue the one of the look before. A request
only ever grows, so its size tells each change.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from mbd.certificate.layout import CERTIFICATES, TOMBSTONES, object_name
from mbd.certificate.log.checkpoint import Checkpoint
from mbd.certificate.log.reader import Log, read_head
from mbd.certificate.registry import read_statement
from mbd.certificate.statement import DeletionStatement, ReauditStatement
from mbd.certificate.trust import Trust, read_trust
from mbd.errors import DataError, VerificationError
from mbd.evaluation.leakage import LeakageRecord
from mbd.monitoring.facts import (
    CertificateFacts,
    InvalidEntry,
    RequestFacts,
    StatementFacts,
    facts_of,
    facts_of_request,
)
from mbd.requests.record import DeletionRequest
from mbd.requests.request_store import PREFIX as REQUESTS
from mbd.storage import folder_of
from mbd.storage.store import Store, StoredObject, StoreError

_READERS = 8
_AT_ONCE = 256

Fact = TypeVar("Fact")
Mark = tuple[tuple[str, int, float], ...]
"""name, size and time of the objects that a fact was read from"""


class StoppedError(Exception):
    """The look was called off."""


@dataclass(frozen=True)
class StoreSnapshot:
    """The store as of one look."""

    certificates: Mapping[str, CertificateFacts | StatementFacts | InvalidEntry]
    """by digest"""
    requests: Mapping[str, RequestFacts | InvalidEntry]
    log: Checkpoint | None
    log_problem: str | None
    tombstones: int
    resurrected: int
    """purged files that are in the store again"""
    read: int
    """objects that had to be read"""


@dataclass
class _Known(Generic[Fact]):
    """What was read, with the state of the objects that it was read from."""

    read: Callable[[str], Fact]
    facts: dict[str, tuple[Mark, Fact]] = field(default_factory=dict)

    def refresh(self, listed: Mapping[str, Mark], stopped: Callable[[], bool]) -> int:
        """Forget what is no longer there, read what is new or changed; return how many that were."""
        for gone in self.facts.keys() - listed.keys():
            del self.facts[gone]
        new = [name for name, mark in listed.items() if name not in self.facts or self.facts[name][0] != mark]
        with ThreadPoolExecutor(_READERS) as pool:
            for start in range(0, len(new), _AT_ONCE):
                if stopped():
                    raise StoppedError
                some = new[start : start + _AT_ONCE]
                for name, fact in zip(some, pool.map(self.read, some), strict=True):
                    self.facts[name] = listed[name], fact
        return len(new)

    def __iter__(self) -> Iterator[tuple[str, Fact]]:
        return ((name, fact) for name, (_, fact) in self.facts.items())


class Scanner:
    """Looks at one store."""

    def __init__(self, store: Store, trust_file: Path) -> None:
        self._store, self._trust_file = store, trust_file
        self._trust: Trust | None = None
        self._certificates = _Known(self._read_certificate)
        self._requests = _Known(self._read_request)
        self._head: Checkpoint | None = None
        self._seen = False

    def scan(self, stopped: Callable[[], bool] = lambda: False) -> StoreSnapshot:
        """Look at the store; StoreError (or another MbdError) if that is not possible now.

        A long look ends with StoppedError once `stopped()`; what it has read by then is kept.
        """
        self._check_trust()
        self._check_there()
        listed = _by_digest(self._store.list(f"{CERTIFICATES}/"))
        requests = {stored.name: (_mark(stored),) for stored in self._store.list(REQUESTS)}
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
        """Return the attacks that a certificate or an audit tells of; None if it tells of none."""
        try:
            statement = read_statement(self._store, digest, self._believed)
        except (VerificationError, DataError):
            return None  # changed since it was listed: the next look will tell
        if isinstance(statement, DeletionStatement):
            return statement.predicate.evidence.leakage
        return statement.predicate.leakage if isinstance(statement, ReauditStatement) else None

    def _check_trust(self) -> None:
        """Read the trust file; if it has changed, nothing that was verified counts any more."""
        trust = read_trust(self._trust_file)
        if self._trust is not None and trust != self._trust:
            self._certificates.facts.clear()
        self._trust = trust

    def _check_there(self) -> None:
        """Tell a store that is not there, or is empty all of a sudden, from one that has nothing in it yet."""
        url, empty = self._store.url, next(self._store.list(), None) is None
        if url.startswith("file://") and not folder_of(url).is_dir():
            raise StoreError(f"there is no folder {url}", hint="is it mounted? check store.url")
        if empty and self._seen:
            raise StoreError(f"everything that was in {url} is gone", hint="is it mounted?")
        self._seen = not empty

    def _check_log(self) -> tuple[Checkpoint | None, str | None]:
        """Return the newest head that can be believed, and what is wrong with the log, if anything is."""
        trust = self._believed
        try:
            head, _ = read_head(self._store, trust)
            if self._head is not None:
                if head is None:
                    return self._head, "the head of the log is gone"
                Log(self._store, trust, head).consistency(self._head)
        except (VerificationError, DataError) as error:
            return self._head, error.problem
        self._head = head
        return head, None

    def _read_certificate(self, digest: str) -> CertificateFacts | StatementFacts | InvalidEntry:
        try:
            return facts_of(digest, read_statement(self._store, digest, self._believed))
        except (VerificationError, DataError) as error:
            return InvalidEntry(error.problem)

    def _read_request(self, name: str) -> RequestFacts | InvalidEntry:
        try:
            return facts_of_request(DeletionRequest.model_validate_json(self._store.read(name)))
        except (ValidationError, DataError) as error:
            return InvalidEntry(str(error))

    def _tombstones(self) -> set[str]:
        return {stored.name.rpartition("/")[2] for stored in self._store.list(f"{TOMBSTONES}/sha256/")}

    def _resurrected(self, tombstones: set[str]) -> int:
        if not tombstones:
            return 0
        kept = itertools.chain(self._store.list(object_name("")), self._store.list("batches/files/"))
        return len(tombstones & {stored.name.rpartition("/")[2] for stored in kept})

    @property
    def _believed(self) -> Trust:
        if self._trust is None:
            self._check_trust()
        assert self._trust is not None  # noqa: S101 -- it was just read
        return self._trust


def _by_digest(listed: Iterator[StoredObject]) -> dict[str, Mark]:
    """Return the objects of every published envelope: itself, and its proof."""
    found: dict[str, Mark] = {}
    for stored in listed:
        digest = stored.name.split("/")[1]
        found[digest] = (*found.get(digest, ()), _mark(stored))
    return found


def _mark(stored: StoredObject) -> tuple[str, int, float]:
    file = stored.name.rpartition("/")[2]
    return file, stored.size, stored.modified.timestamp() if stored.modified else 0.0

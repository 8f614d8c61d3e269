"""Scan a store repeatedly, reading only what has changed.

The log is replayed (:mod:`mbd.history.replay`): a scan reads its head and the statements that are new, and refuses
a log that does not continue that of the scan before. Statements are listed, too: one whose size or modification time
has changed is compared with its digest again, and one that is missing or damaged makes all states unknown. A request
only ever grows, so a change always shows in its size.

What was verified is kept in the cache folder of this machine, with size and modification time of each statement, so
that the first scan after a restart reads no more than other scans.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from mbd.errors import DataError, VerificationError
from mbd.files import write_file
from mbd.formats.files import CERTIFICATE
from mbd.formats.layout import CERTIFICATES, certificate_name, object_name
from mbd.formats.leakage import LeakageRecord
from mbd.formats.request import REQUESTS, DeletionRequest, State, parse_request
from mbd.history.entries import read_leakage
from mbd.history.facts import EntryFinding
from mbd.history.history import MAX_AGE, History
from mbd.history.replay import LogReplay, cache_file
from mbd.history.tombstones import read_list
from mbd.storage import folder_of
from mbd.storage.store import Store, StoredObject, StoreError
from mbd.trust.commitments import RequestKey
from mbd.trust.trust_file import Trust, read_trust


@dataclass(frozen=True, slots=True)
class InvalidEntry:
    """An object that does not verify or cannot be parsed."""

    reason: str


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """A request; times in seconds since the epoch."""

    id: str
    model: str
    modalities: tuple[str, ...]
    state: State
    received: float
    due: float
    certificate: str | None
    events: tuple[tuple[State, float], ...]
    """every state that it entered, and when"""
    of_person: bool = False
    requester: str = ""
    """the case number"""


def facts_of_request(request: DeletionRequest) -> RequestFacts:
    """Return the facts of a request; of its history what changed its state."""
    states = [None, *(event.state for event in request.history)]
    changes = (event for before, event in zip(states, request.history, strict=False) if event.state != before)
    return RequestFacts(
        id=request.id,
        model=request.model,
        modalities=request.modalities,
        state=request.state,
        received=request.received.timestamp(),
        due=request.due.timestamp(),
        certificate=request.certificate,
        events=tuple((event.state, event.at.timestamp()) for event in changes),
        of_person=request.of_person,
        requester=request.requester,
    )


def proven(facts: RequestFacts, history: History) -> RequestFacts:
    """Return a request as the log shows it: that it is certified is believed only with a certificate in the log."""
    shown = history.shows(facts.certificate, facts.model, facts.modalities, person=facts.of_person)
    if facts.state != "certified" or shown:
        return facts
    return replace(facts, state="running", certificate=None, events=facts.events[:-1])


_THREADS = 8
_BATCH = 256

Fact = TypeVar("Fact")
Fingerprint = tuple[int, float]
"""size and modification time of the object that a fact was read from"""


class ScanStoppedError(Exception):
    """The scan was cancelled."""


@dataclass(frozen=True)
class StoreSnapshot:
    """The result of one scan."""

    history: History
    """what the log says; entries whose objects are missing or damaged are among its findings"""
    unlogged: int
    """number of envelopes that are not in the log"""
    requests: Mapping[str, RequestFacts | InvalidEntry]
    log_problem: str | None
    """why the log cannot be trusted any more; the history is that of an earlier scan"""
    tombstones: int
    resurrected: int
    """number of purged files that are in the store again"""
    read: int
    """number of objects that were read"""
    max_age: timedelta | None = MAX_AGE
    """how old the log's checkpoint may be; an older one may hide later statements"""

    @property
    def valid_requests(self) -> list[RequestFacts]:
        """The requests, as the log shows them."""
        return [proven(fact, self.history) for fact in self.requests.values() if isinstance(fact, RequestFacts)]

    @property
    def problem(self) -> str | None:
        """Why the state of certificates cannot be known; None: it can."""
        return self.log_problem or self.history.problem(datetime.max.replace(tzinfo=UTC))


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
    """Scans one store and its private part, and remembers what it has verified."""

    def __init__(
        self,
        store: Store,
        private: Store,
        trust_file: Path,
        max_age: timedelta | None = MAX_AGE,
        key: RequestKey | None = None,
    ) -> None:
        """`key`: the key of requests, by which they are authentic; None: they are counted as they state."""
        self._key = key
        self._store, self._private, self._trust_file, self._max_age = store, private, trust_file, max_age
        self._purged: dict[str, frozenset[str]] = {}
        self._replay = LogReplay(store, cached=True)
        self._history = History(store, None, {}, ())
        self._envelopes = _Cache(self._compare_envelope)
        self._requests = _Cache(self._read_request)
        self._seen = False

    def scan(self, stopped: Callable[[], bool] = lambda: False) -> StoreSnapshot:
        """Scan the store.

        Args:
            stopped: asked between batches of reads; the scan is cancelled once it returns true.

        Raises:
            ScanStoppedError: the scan was cancelled.
            StoreError: the store is unreachable, missing or suddenly empty.

        """
        trust = read_trust(self._trust_file)  # if it has changed, everything is verified again
        listed = _by_digest(self._store.list(f"{CERTIFICATES}/"))
        self._check_there(listed)
        requests = {stored.name: _fingerprint(stored) for stored in self._private.list(REQUESTS)}
        before = self._history.indices.keys()
        problem, read = self._read_log(trust, stopped)
        new = set(self._history.indices.keys() - before)
        damaged, compared = self._damaged(trust, listed, new, stopped)
        read += compared + self._requests.refresh(requests, stopped)
        tombstones = self._tombstones()
        return StoreSnapshot(
            history=replace(self._history, findings=(*self._history.findings, *damaged)),
            unlogged=len(listed.keys() - self._history.digests),
            requests=dict(self._requests),
            log_problem=problem,
            tombstones=len(tombstones),
            resurrected=self._resurrected(tombstones),
            read=read,
            max_age=self._max_age,
        )

    def leakage(self, digest: str) -> LeakageRecord | None:
        """Return the leakage record of a certificate or a re-audit; None if there is none."""
        try:
            statement = self._history.statement(digest)
        except (VerificationError, DataError):
            return None  # changed since it was listed: the next scan counts it as invalid
        return read_leakage(self._store, statement)

    def _check_there(self, listed: Mapping[str, Fingerprint]) -> None:
        """Distinguish a store that is missing or suddenly empty from one in which nothing was published yet."""
        url, empty = self._store.url, not listed and next(self._store.list(), None) is None
        if url.startswith("file://") and not folder_of(url).is_dir():
            raise StoreError(
                f"the folder of the store does not exist: {url}", hint="check store.url, and that the volume is mounted"
            )
        if empty and self._seen:
            raise StoreError(f"the store is empty, but was not before: {url}", hint="check that the volume is mounted")
        self._seen = not empty

    def _read_log(self, trust: Trust, stopped: Callable[[], bool]) -> tuple[str | None, int]:
        """Read what is new in the log; return the problem with it (None: there is none), and how much was read."""

        def pause() -> None:
            if stopped():
                raise ScanStoppedError

        try:
            self._history = self._replay.read(trust, pause)
        except (VerificationError, DataError) as error:
            return error.problem, 0
        return None, self._history.read

    def _damaged(
        self, trust: Trust, listed: Mapping[str, Fingerprint], new: set[str], stopped: Callable[[], bool]
    ) -> tuple[list[EntryFinding], int]:
        """Return the statements that are missing or damaged in the store by now, and how many objects were read."""
        indices, file = self._history.indices, cache_file(self._store.url, trust)
        there = {digest: found for digest, found in listed.items() if digest in indices}
        if not self._envelopes.facts:
            self._envelopes.facts.update((digest, (found, None)) for digest, found in _compared_before(file).items())
        read_from = (self._history.head.size if self._history.head else 0) - self._history.read
        for digest in new & there.keys():
            if indices[digest] >= read_from:  # it was read for the history a moment ago
                self._envelopes.facts[digest] = there[digest], None
        read = self._envelopes.refresh(there, stopped)
        if read or new:
            _keep_compared(
                file, {digest: found for digest, (found, problem) in self._envelopes.facts.items() if not problem}
            )
        gone = dict.fromkeys(indices.keys() - there.keys(), "the object does not exist")
        damaged = {**gone, **{digest: problem for digest, problem in self._envelopes if problem}}
        return [EntryFinding(indices[digest], digest, damaged[digest], blocks=True) for digest in damaged], read

    def _compare_envelope(self, digest: str) -> str | None:
        """Return what is wrong with an envelope that has changed; None: it is the same as before."""
        try:
            self._store.read(certificate_name(digest), sha256=digest)
        except (VerificationError, DataError) as error:
            return error.problem
        return None

    def _read_request(self, name: str) -> RequestFacts | InvalidEntry:
        try:
            request = parse_request(self._private.read(name), name)
            if self._key and not self._key.is_mac(request.mac, request.authenticated):
                raise DataError("this request is not authentic", file=name)
            return facts_of_request(request)
        except DataError as error:
            return InvalidEntry(str(error))

    def _tombstones(self) -> set[str]:
        """Return the digests of the files that verified purge statements list; a list is read once."""
        for statement in self._history.statements:
            if statement.tombstones and statement.tombstones not in self._purged:
                with suppress(DataError, VerificationError):  # missing or damaged; `mbd purge scan` reports it
                    listed = read_list(self._private, statement.tombstones, statement.about)
                    self._purged[statement.tombstones] = frozenset(target.sha256 for target in listed.targets)
        return set[str]().union(*self._purged.values())

    def _resurrected(self, tombstones: set[str]) -> int:
        if not tombstones:
            return 0
        kept = itertools.chain(self._store.list(object_name("")), self._private.list("batches/files/"))
        return len(tombstones & {stored.name.rpartition("/")[2] for stored in kept})


_COMPARED = TypeAdapter(dict[str, Fingerprint])


def _compared_before(file: Path | None) -> dict[str, Fingerprint]:
    """Return the fingerprints of the statements that an earlier process has compared with their digests."""
    try:
        return _COMPARED.validate_json(_beside(file).read_bytes()) if file else {}
    except (OSError, ValidationError):
        return {}


def _keep_compared(file: Path | None, compared: dict[str, Fingerprint]) -> None:
    if file is not None:
        with suppress(OSError):  # the next process compares them again
            write_file(_beside(file), _COMPARED.dump_json(compared), mode=0o600)


def _beside(file: Path) -> Path:
    return file.with_suffix(".compared.json")


def _by_digest(listed: Iterator[StoredObject]) -> dict[str, Fingerprint]:
    """Return the fingerprint of each envelope."""
    fingerprints: dict[str, Fingerprint] = {}
    for stored in listed:
        _, digest, file = (*stored.name.split("/"), "", "")[:3]
        if file == CERTIFICATE:
            fingerprints[digest] = _fingerprint(stored)
    return fingerprints


def _fingerprint(stored: StoredObject) -> Fingerprint:
    return stored.size, stored.modified.timestamp() if stored.modified else 0.0

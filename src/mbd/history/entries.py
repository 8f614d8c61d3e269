"""The certificates of a store, and what lies there and does not count.

What counts is in the log: names and pointers of the store decide nothing. A certificate is named by its digest, or the
start of it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from mbd.errors import DataError, UsageError, VerificationError
from mbd.formats.files import CERTIFICATE
from mbd.formats.layout import CERTIFICATES, object_name
from mbd.formats.leakage import LEAKAGE, LeakageRecord
from mbd.formats.statement import AnyStatement, DeletionStatement, ReauditStatement
from mbd.history.facts import CertificateFacts
from mbd.history.history import MAX_AGE, History
from mbd.history.replay import cache_file, read_history, read_kept
from mbd.history.state import Status, status_in
from mbd.log.memory import read_memory
from mbd.log.reader import Log
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust

_SHORTEST = 6
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class CertificateEntry:
    """A certificate in the log."""

    facts: CertificateFacts
    statement: DeletionStatement
    status: Status
    about: tuple[AnyStatement, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of its envelope."""
        return self.facts.digest


@dataclass(frozen=True)
class InvalidCertificate:
    """An entry of the log that does not count or cannot be read, or an object below `certificates/` outside the log."""

    digest: str
    reason: str


def read_entries(
    store: Store,
    trust: Trust,
    at: datetime,
    history: History | None = None,
    *,
    max_age: timedelta | None = MAX_AGE,
) -> Iterator[CertificateEntry | InvalidCertificate]:
    """Yield every certificate of a store, in the log's order, and after them what does not count."""
    history = history or read_history(store, trust)
    for facts in history.certificates.values():
        try:
            yield entry_of(history, facts, at, max_age)
        except (VerificationError, DataError) as error:
            yield InvalidCertificate(facts.digest, error.problem)
    yield from invalid_entries(history)


def invalid_entries(history: History) -> Iterator[InvalidCertificate]:
    """Yield the entries of the log that do not count or cannot be read, and envelopes that are not in the log."""
    for finding in history.findings:
        yield InvalidCertificate(finding.digest, f"entry {finding.index} of the log: {finding.reason}")
    yield from (InvalidCertificate(digest, "it is not in the log") for digest in find_unlogged(history))


def find_unlogged(history: History) -> Iterator[str]:
    """Yield the digests of the envelopes in the store that are not in the log; other names there mean nothing."""
    logged = history.digests
    for stored in history.store.list(f"{CERTIFICATES}/"):
        _, digest, file = (*stored.name.split("/"), "", "")[:3]
        if file == CERTIFICATE and digest not in logged and _DIGEST.fullmatch(digest):
            yield digest


def read_entry(
    store: Store, start: str, trust: Trust, at: datetime, *, max_age: timedelta | None = MAX_AGE
) -> CertificateEntry:
    """Return one certificate, named by its digest or the start of it; `max_age`: see :func:`status_in`."""
    history = read_history(store, trust)
    digest = find_digest(history, start)
    if finding := next((f for f in history.findings if f.digest == digest), None):
        raise VerificationError(f"this entry of the log does not count: {finding.reason}", value=digest)
    if digest not in history.certificates:
        raise UsageError("this is not a certificate, but a statement about one", value=digest)
    return entry_of(history, history.certificates[digest], at, max_age)


def entry_of(history: History, facts: CertificateFacts, at: datetime, max_age: timedelta | None) -> CertificateEntry:
    """Return a certificate of a history, with what was said about it and its state at a time."""
    about = tuple(history.statement(s.digest) for s in history.about(facts.digest))
    status = status_in(history, facts, at, max_age=max_age)
    return CertificateEntry(facts, history.certificate(facts.digest), status, about)


def find_digest(history: History, start: str) -> str:
    """Return the one entry of the log whose digest begins with `start`."""
    matches = [digest for digest in history.digests if digest.startswith(start)] if len(start) >= _SHORTEST else []
    if len(matches) != 1:
        raise DataError(
            "there is no such certificate in this store" if not matches else "several certificates begin like this",
            value=start,
            hint=f"`mbd certificate list` lists them; give a unique prefix of at least {_SHORTEST} digits",
        )
    return matches[0]


def read_leakage(store: Store, statement: AnyStatement) -> LeakageRecord | None:
    """Return `leakage.json` of a statement; None if it has none, or if the store no longer has the right one."""
    audited = statement.predicate.leakage if isinstance(statement, ReauditStatement) else None
    digest = audited or statement.digests.get(LEAKAGE)
    if digest is None:
        return None
    try:
        content = store.read(object_name(digest), sha256=digest)
        return LeakageRecord.from_bytes(content, "leakage record", file=object_name(digest))
    except (DataError, VerificationError):
        return None


def list_lost_entries(log: Log, trust: Trust) -> list[str]:
    """Say which entries are lost, of those that were read here before, if this log is the one that counts."""
    kept = read_kept(cache_file(read_memory(trust).url, trust))
    entries = {
        c.index: (c.digest, f"certificate of {c.model}, {', '.join(c.modalities)}") for c in kept.certificates.values()
    }
    entries |= {r.index: (r.digest, f"registration of {r.model}") for r in kept.registrations.values()}
    entries |= {s.index: (s.digest, f"{s.kind} of {s.about[:16]}") for s in kept.statements if s.index not in entries}
    return [
        f"entry {index}: {digest[:16]}, {what}"
        for index, (digest, what) in sorted(entries.items())
        if index >= log.size or log.entry(index).hex() != digest
    ]

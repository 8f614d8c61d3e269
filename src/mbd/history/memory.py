"""What was kept of a log's entries that were read and verified on this machine, so that none is read twice.

It decides nothing: it serves for the log whose first entries have the same hashes, and is made again for another.
"""

import hashlib
import logging
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from mbd.files import write_file
from mbd.history.facts import CertificateFacts, EntryFinding, RegistrationFacts, StatementFacts
from mbd.log.memory import cache_folder, location, read_memory
from mbd.log.reader import Log
from mbd.trust.trust_file import Trust

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


def read_kept(file: Path | None) -> Memory:
    """Return what a file keeps: nothing if there is none, or none that is readable."""
    try:
        return _form().validate_json(file.read_bytes()) if file else Memory()
    except OSError:
        return Memory()
    except ValidationError:
        _LOG.warning("the cache of the log's history is not readable, so the whole log is read again: %s", file)
        return Memory()


def write_kept(file: Path | None, memory: Memory) -> None:
    """Replace what a file keeps; where it cannot be written, the next replay reads more."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, _form().dump_json(memory), mode=0o600)
    except OSError as error:
        _LOG.debug("the log's history is not cached: %s", error)


def given_up(log: Log, trust: Trust) -> list[str]:
    """Say which entries are lost, of those that were read here before, if this log is the one that counts."""
    kept = read_kept(cache_file(read_memory(trust).url, trust))
    entries = {c.index: (c.digest, f"certificate of {c.model}, {', '.join(c.modalities)}") for c in kept.certificates}
    entries |= {r.index: (r.digest, f"registration of {r.model}") for r in kept.registrations}
    entries |= {s.index: (s.digest, f"{s.kind} of {s.about[:16]}") for s in kept.statements if s.index not in entries}
    return [
        f"entry {index}: {digest[:16]}, {what}"
        for index, (digest, what) in sorted(entries.items())
        if index >= log.size or log.entry(index).hex() != digest
    ]

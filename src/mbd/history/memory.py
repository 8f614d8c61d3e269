"""What this machine remembers of a store's log, in its cache folder and outside the store.

    head           the newest that was seen here: a log that is older, or does not continue it, is refused
    entries        what was kept of those that were read and verified, so that none is read twice

A writer to the store cannot change this memory, and so cannot pass off an older log as the newest.
"""

import hashlib
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from mbd.errors import DataError, VerificationError
from mbd.files import write_file
from mbd.formats.files import PROOF
from mbd.formats.layout import CERTIFICATES, proof_name
from mbd.history.facts import CertificateFacts, EntryFinding, RegistrationFacts, StatementFacts
from mbd.log.checkpoint import Inclusion, verify_checkpoint
from mbd.log.merkle import EMPTY, consistency_proof, is_consistent
from mbd.log.reader import Log, read_claim
from mbd.log.tiles import CHECKPOINT, OLD_CHECKPOINTS, node_in
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust

_log = logging.getLogger(__name__)

Bytes = Annotated[bytes, PlainSerializer(lambda data: data.hex(), str), PlainValidator(bytes.fromhex)]


@dataclass(frozen=True)
class SeenHead:
    """A head that was seen here."""

    size: int = 0
    root: Bytes = EMPTY


@dataclass(frozen=True)
class Memory:
    """What is remembered of one log; by default, nothing."""

    seen: SeenHead = SeenHead()
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


@cache
def _form() -> TypeAdapter[Memory]:
    return TypeAdapter(Memory)


def is_remembered(store: Store, trust: Trust) -> bool:
    """Return whether the log of a store was read on this machine before, so that an older copy of it is refused."""
    return read_memory(cache_file(store, trust)).seen.size > 0


def check_memory(store: Store, trust: Trust) -> None:
    """Refuse a log that does not continue the one that was read on this machine before; remember nothing new.

    Raises:
        VerificationError: It is older, or was rewritten.

    """
    known, log = read_memory(cache_file(store, trust)), Log(store, trust)
    if problem := rolled_back(log, known, store, trust):
        raise problem
    if known.seen.size:
        proof = consistency_proof(node_in(log.hashes), known.seen.size, log.size)
        if not is_consistent(known.seen.size, known.seen.root, log.size, log.head.root, proof):
            raise rewritten(known.seen)


def rolled_back(log: Log, known: Memory, store: Store, trust: Trust) -> VerificationError | None:
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


def rewritten(seen: SeenHead) -> VerificationError:
    """Return the error for a log that does not continue the one that was seen here."""
    return VerificationError(
        f"the log has been rewritten: its first {seen.size} entries are not those that were read here before",
        hint="two signed checkpoints contradict each other: do not trust this log, and show both to other verifiers",
    )


def cache_file(store: Store, trust: Trust) -> Path | None:
    """Return the file of this machine's memory of a store's log; None where there is no place for it."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    name = hashlib.sha256(f"{trust.log_origin}\n{store.url}".encode()).hexdigest()
    return folder / "missing-by-design" / "history" / f"{name}.json"


def read_memory(file: Path | None) -> Memory:
    """Return what a file remembers: nothing if there is none, or none that is readable."""
    try:
        return _form().validate_json(file.read_bytes()) if file else Memory()
    except OSError:
        return Memory()
    except ValidationError:
        _log.warning("the cache of the log's history is not readable, so the whole log is read again: %s", file)
        return Memory()


def write_memory(file: Path | None, memory: Memory) -> None:
    """Replace what a file remembers; where it cannot be written, the next replay reads more."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, _form().dump_json(memory), mode=0o600)
    except OSError as error:
        _log.debug("the log's history is not cached: %s", error)

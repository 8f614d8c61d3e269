"""What this machine remembers of a log, in its cache folder and outside of every store.

    seen      the newest head that was read here: a log that is older, or does not continue it, is refused
    signed    the newest head that was signed here, or was about to be: none is signed that contradicts it

A log is known by its origin, which its checkpoints sign, and not by where it lies: one store has many spellings, and a
copy of it is the same log. Somebody who can write to the store cannot change this memory, and so cannot pass off an
older log as the newest, nor have two histories signed.

A machine that has never signed a log does not continue one that has entries, for it could be an old copy: its operator
says that it is the first time (:func:`mbd.log.check.adopt_log`). A log without entries is begun.
"""

import errno
import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mbd.errors import DataError, MbdError, VerificationError
from mbd.files import locked, write_file
from mbd.formats.files import PROOF
from mbd.formats.layout import CERTIFICATES, proof_name
from mbd.log.checkpoint import Checkpoint, Inclusion, verify_checkpoint
from mbd.log.merkle import EMPTY
from mbd.log.reader import Log, read_claim, read_head
from mbd.log.tiles import CHECKPOINT, OLD_CHECKPOINTS
from mbd.records import Digest, Record
from mbd.storage import folder_of
from mbd.storage.store import Store
from mbd.trust.trust_file import Trust

_LOG = logging.getLogger(__name__)
_DECIDE = "`mbd log adopt --store URL` makes the log of that store the one that counts here, and lists what is given up"


class Head(Record):
    """Size and root of a signed head."""

    size: int = 0
    root: Digest = EMPTY.hex()


class LogMemory(Record):
    """What is remembered of one log; by default, nothing."""

    seen: Head = Head()
    url: str = ""
    """of the store in which it was seen"""
    signed: Head | None = None
    """None: this machine has never signed a head of the log"""


def head_of(log: Log) -> Head:
    """Return size and root of a log."""
    return Head(size=log.size, root=log.head.root.hex()) if log.size else Head()


def cache_folder() -> Path | None:
    """Return the folder of what this machine remembers; None where there is no place for it."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "missing-by-design"
    except RuntimeError:
        return None


def location(url: str) -> str:
    """Return where a store is, whatever the current folder and the links that its URL goes through."""
    return f"file://{folder_of(url).resolve()}" if url.startswith("file://") else url


def read_memory(trust: Trust) -> LogMemory:
    """Return what is remembered of the log of a trust file: nothing if that is not readable."""
    file = _file(trust)
    try:
        return LogMemory.from_bytes(file.read_bytes(), "memory of the log", file=file) if file else LogMemory()
    except OSError:
        return LogMemory()
    except DataError as error:
        _LOG.warning("what was remembered of the log %s is lost: %s", trust.log_origin, error)
        return LogMemory()


def remember(log: Log, signed: Head | None = None, *, instead: bool = False) -> bool:
    """Remember the head of a log, and one that is about to be signed after it; of two heads, the larger one.

    It is the last word before a signature: of two processes of this machine, one comes second here.

    Args:
        log: The log, as it was read.
        signed: The head that is signed next; None: none is.
        instead: Forget what was remembered before.

    Returns:
        Whether it is the newest head that was signed here; if not, another process has signed a later one meanwhile.

    Raises:
        MbdError: A head is about to be signed, and cannot be remembered.
        VerificationError: Another head of its size was signed.
    """
    head, file = head_of(log), _file(log.trust)
    try:
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "there is no home folder", "XDG_CACHE_HOME")
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file.parent, wait=True):
            before = LogMemory() if instead else read_memory(log.trust)
            after = before
            if instead or head.size > before.seen.size:
                after = after.model_copy(update={"seen": head, "url": location(log.store.url)})
            if signed and before.signed and signed.size == before.signed.size and signed != before.signed:
                raise contradiction(log, before.signed)
            if signed and (before.signed is None or signed.size > before.signed.size):
                after = after.model_copy(update={"signed": signed})
            if after != before:
                write_file(file, after.to_bytes(), mode=0o600)
            return signed in (None, after.signed)
    except OSError as error:
        problem = f"the head of the log cannot be remembered, so that an older one would pass here: {error.strerror}"
        if signed is None:
            _LOG.debug(problem)
            return False
        hint = "let XDG_CACHE_HOME name a folder that can be written and that lasts"
        raise MbdError(problem, file=error.filename, hint=hint) from error


def open_log(store: Store, trust: Trust, memory: LogMemory) -> tuple[Log, str | None]:
    """Return the log and the tag of its head.

    Args:
        store: The store.
        trust: Who is trusted.
        memory: What is remembered of it; read before, for other processes move the head.

    Raises:
        VerificationError: It is older than a head that was signed, or does not continue the one that was seen here.
    """
    size = -1
    while True:
        head, tag = read_head(store, trust)
        log = Log(store, trust, head)
        problem = _problem(log, memory)
        if problem is None:
            return log, tag
        if log.size <= size:  # else it has grown in the meantime
            raise problem
        size = log.size


def _problem(log: Log, memory: LogMemory) -> VerificationError | None:
    """Return the error for a log that is older than a head that was signed, or does not continue the one seen here.

    Such heads are known from this machine's memory, or from a proof in the store. The place after the head is claimed
    only while a writer is at work: if the entry that claimed it has a proof, it was logged.
    """
    seen, older = memory.seen, "an older copy of the store or of its checkpoint is served: do not trust it"
    if log.size < seen.size:
        problem = f"the log has shrunk: it had {seen.size} entries when it was read here before, now {log.size}"
        return _not_the_one(log, memory, problem, f"{older}, and bring the newest one back")
    if not log.continues(seen.size, bytes.fromhex(seen.root)):
        problem = f"the log has been rewritten: its first {seen.size} entries are not those that were read here before"
        return _not_the_one(log, memory, problem, "two signed checkpoints contradict each other: show both to others")
    if (later := _size_in_proof(log)) > log.size:
        problem, hint = f"a signed checkpoint has {later} entries, and its head {log.size}", older
    elif not log.size and _was_logged(log.store, log.trust):
        problem = "it has no checkpoint, and something was logged before"
        hint = "bring the object back from a copy of the store; `mbd log repair` makes it from the entries"
    else:
        return None
    return VerificationError(f"the log has shrunk: {problem}", file=CHECKPOINT, hint=hint)


def _not_the_one(log: Log, memory: LogMemory, problem: str, hint: str) -> VerificationError:
    """Return the error for a log that is not the one that was seen here: an older or another copy of it."""
    if memory.url != location(log.store.url):
        problem = f"a copy of this log has gone on elsewhere, in {memory.url}: {problem}"
        hint += "" if log.size else "; a second store needs keys and an origin of its own (`mbd keys new --out DIR`)"
    return VerificationError(problem, file=log.store.url, hint=f"{hint}; {_DECIDE}")


def contradiction(log: Log, signed: Head) -> VerificationError:
    """Return the error for a head that is not signed, because another one of its size was."""
    return VerificationError(
        f"this machine has signed another head of size {signed.size} of the log {log.trust.log_origin}: two that "
        "contradict each other are not signed",
        file=log.store.url,
        hint=f"bring the newest copy of the store back; {_DECIDE}",
    )


def _size_in_proof(log: Log) -> int:
    """Return the size of the log in the proof of the entry that has claimed the place after the head; 0 without one."""
    try:
        leaf = read_claim(log.store, log.size)
        proof = Inclusion.from_bytes(log.store.read(proof_name(leaf.hex())), "proof of inclusion")
        proof.verify(leaf, log.trust)
    except (DataError, VerificationError):
        return 0
    return proof.tree_size


def _was_logged(store: Store, trust: Trust) -> bool:
    """Return whether there are proofs or older heads that the log has signed; they are written only after a head."""
    for stored in store.list(OLD_CHECKPOINTS):
        with suppress(DataError, VerificationError):
            verify_checkpoint(store.read(stored.name).decode(errors="replace"), trust)
            return True
    return next(checkpoints_in_proofs(store, trust), None) is not None


def checkpoints_in_proofs(store: Store, trust: Trust) -> Iterator[Checkpoint]:
    """Yield the signed checkpoints in the proofs of a store."""
    notes = set[str]()
    for stored in store.list(f"{CERTIFICATES}/"):
        if stored.name.endswith(f"/{PROOF}"):
            with suppress(DataError, VerificationError):  # junk, or of another log
                note = Inclusion.from_bytes(store.read(stored.name), "proof of inclusion").checkpoint
                if note not in notes:
                    notes.add(note)
                    yield verify_checkpoint(note, trust)


def _file(trust: Trust) -> Path | None:
    folder = cache_folder()
    return folder / "logs" / f"{hashlib.sha256(trust.log_origin.encode()).hexdigest()}.json" if folder else None

"""Appending to the log: one order, one entry for each leaf, with any number of writers, any of which may be killed.

A writer first *claims* a place: it creates `log/claims/N` with its leaf, for the first N from the head's size on that
is not claimed yet. A store lets one writer win, so the claims are the order of the log, decided once, and all
else follows from them. Then any writer can bring the log up to date: for every claim after the head

1. `log/index/LEAF` says its place, entry bundles and tiles are created, and the old head is kept;
2. the new head takes its place by compare-and-swap.

All writers create the *same* bytes under the same names, because both follow from the claims; who comes second finds
its work done. A killed writer leaves at worst a claim, which the next writer carries out: it never lies in the way, and
no two heads are ever signed that contradict each other. A store that lies about the claims or the head is found out by
what the writer's machine remembers: each head is remembered before it is signed (:mod:`mbd.log.memory`).

A leaf is never logged twice: an entry before the head has its place in the index (written before the head moved), one
after the head is met while looking for a free place. An append costs a fixed number of operations of the store and
one or two more for each level of tiles, ⌈log₂₅₆ n⌉.
"""

import base64
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime

from securesystemslib.signer import Signer

from mbd.errors import DataError, UsageError, VerificationError
from mbd.log.checkpoint import DATED, PLAIN, Checkpoint, Inclusion, NoteSignature, dated, note_key_id
from mbd.log.memory import Head, contradiction, open_log, read_memory, remember
from mbd.log.merkle import HASH_SIZE, leaf_hash
from mbd.log.reader import MOST_AT_ONCE, Log, LogDamagedError, read_claim, read_place
from mbd.log.tiles import (
    CHECKPOINT,
    WIDTH,
    Edge,
    Tile,
    claim_name,
    index_name,
    old_checkpoint_name,
    pack_entries,
    right_edge,
    tiles_of,
)
from mbd.records import now
from mbd.storage.store import ConflictError, NotThereError, OtherContentError, Store
from mbd.trust.public_keys import ED25519, key_id, public_pem, raw_ed25519
from mbd.trust.trust_file import Trust, may_sign

_AT_ONCE = 8
CheckLeaf = Callable[[bytes], object]
"""raises a DataError or VerificationError for a leaf that must not be logged"""


def append_leaf(store: Store, leaf: bytes, signer: Signer, trust: Trust, check: CheckLeaf | None = None) -> Inclusion:
    """Put a leaf into the log.

    Args:
        store: The store that has the log.
        leaf: See :func:`mbd.log.checkpoint.leaf_of`. One that is there already stays where it is.
        signer: The log's key.
        trust: Who is trusted to sign the log.
        check: Applied to all leaves that are logged, those that other writers have claimed places for, too.

    Returns:
        The proof that it is there, as it was first logged.

    """
    if len(leaf) != HASH_SIZE:
        raise ValueError("a leaf is a SHA-256")
    check_log_signer(signer, trust, now())
    place: int | None = None
    while True:
        log, tag = open_to_sign(store, trust)
        if place is None:
            place = read_place(store, leaf)
        if place is None:
            place = _claim(store, leaf, log.size)
        if place < log.size:
            remember(log)
            return log.inclusion(place, leaf)
        advance_head(log, tag, place, signer, check)


def complete_claims(store: Store, signer: Signer, trust: Trust, check: CheckLeaf | None = None) -> int:
    """Bring all claims of killed writers into the log; return how many there were."""
    start: int | None = None
    while True:
        log, tag = open_to_sign(store, trust)
        start = log.size if start is None else start
        left = len(read_pending(store, log.size, MOST_AT_ONCE))
        if not left:
            return log.size - start
        advance_head(log, tag, log.size + left - 1, signer, check)


def read_pending(store: Store, size: int, most: int | None = None) -> list[bytes]:
    """Return the leaves, at most so many, that have claimed a place after the head but are not in the log yet."""
    leaves: list[bytes] = []
    while most is None or len(leaves) < most:
        try:
            leaves.append(read_claim(store, size + len(leaves)))
        except NotThereError:
            break
    return leaves


def _claim(store: Store, leaf: bytes, place: int) -> int:
    """Return the leaf's place: the first free one from `place` on, or the one that was claimed for it."""
    while True:
        try:
            store.create(claim_name(place), leaf)
        except OtherContentError:
            place += 1
        else:
            return place


def advance_head(log: Log, tag: str | None, place: int, signer: Signer, check: CheckLeaf | None = None) -> None:
    """Move the head over the claims up to `place`, or a part of the way; nothing if another writer moves it first."""
    store, trust, size, head = log.store, log.trust, log.size, log.head if log.size else None
    signed = read_memory(trust).signed or Head()
    end = max(min(place + 1, size + MOST_AT_ONCE), signed.size)
    try:
        leaves = [_checked_claim(store, at, check) for at in range(size, end)]
    except NotThereError as error:  # the claims that were signed before are gone
        raise contradiction(log, signed) from error
    log.check_root()
    edge = Edge(size, {tile.level: list(log.hashes(tile.level, tile.index)) for tile in right_edge(size)})
    tiles: list[tuple[Tile, bytes]] = []
    for leaf in leaves:
        tiles += edge.add(leaf_hash(leaf))
        if edge.size == signed.size and edge.root.hex() != signed.root:
            raise contradiction(log, signed)
    tiles += edge.partial_tiles()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        work = [pool.submit(create_index, store, leaf, at) for at, leaf in enumerate(leaves, start=size)]
        work += [pool.submit(create_same, store, tile.name, content) for tile, content in tiles]
        work += [pool.submit(create_same, store, name, content) for name, content in _bundles(log, leaves)]
        work += [pool.submit(keep_head, store, head)] if head else []
        for upload in work:
            upload.result()
    if not remember(log, Head(size=edge.size, root=edge.root.hex())):
        return  # its entries are in a later head
    time = max(now(), head.time) if head else now()
    note = sign_checkpoint(edge.size, edge.root, time, signer, trust)
    try:
        store.replace(CHECKPOINT, note.encode(), expected=tag)
    except ConflictError:
        return  # the other writer has moved it over the same claims


def open_to_sign(store: Store, trust: Trust) -> tuple[Log, str | None]:
    """Return the log, to sign a head after this one, and the tag of its head.

    Raises:
        VerificationError: It is not the newest log that is known here, this machine has never signed it, or it has
            signed another one.
    """
    log, tag = open_log(store, trust, read_memory(trust))
    signed = read_memory(trust).signed  # another process of this machine may have begun the log meanwhile
    if signed is None and log.size:
        raise VerificationError(
            f"this machine has never signed the log {log.trust.log_origin}, which has {log.size} entries here: it may "
            "be an old copy, and two histories would be signed",
            file=log.store.url,
            hint="where this is the first time, say so by --first-time (certificate.first_time): the log is compared "
            "with all signed checkpoints in the store",
        )
    if signed is None:
        remember(log, Head())
    elif signed.size <= log.size and not log.continues(signed.size, bytes.fromhex(signed.root)):
        raise contradiction(log, signed)
    return log, tag


def sign_checkpoint(size: int, root: bytes, time: datetime, signer: Signer, trust: Trust) -> str:
    """Return the note of a new head."""
    origin = trust.log_origin
    public = raw_ed25519(public_pem(signer))
    text = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    seconds = int(time.timestamp())
    plain = bytes.fromhex(signer.sign(text.encode()).signature)
    with_date = seconds.to_bytes(8) + bytes.fromhex(signer.sign(dated(text, seconds)).signature)
    lines = [(PLAIN, plain), (DATED, with_date)]
    return f"{text}\n" + "".join(
        NoteSignature(origin, note_key_id(origin, kind, public), value).line for kind, value in lines
    )


def check_log_signer(signer: Signer, trust: Trust, time: datetime) -> None:
    """Refuse a signer whose checkpoints would not be trusted."""
    if signer.public_key.scheme != ED25519:
        raise UsageError(
            "a log's checkpoints are signed with Ed25519",
            key="certificate.log_signer",
            value=signer.public_key.scheme,
            hint="`mbd keys new` makes such a key",
        )
    identity = key_id(public_pem(signer))
    if not any(key.id == identity and may_sign(key, time) for key in trust.keys_for("log")):
        raise UsageError(
            "the trust file does not trust this key to sign the log now",
            key="certificate.log_signer",
            value=identity[:12],
            hint="`mbd keys list` shows who is trusted; `mbd keys rotate log` makes a new key of the log",
        )


def _checked_claim(store: Store, place: int, check: CheckLeaf | None) -> bytes:
    leaf = read_claim(store, place)
    try:
        if check:
            check(leaf)
    except (DataError, VerificationError) as error:
        raise LogDamagedError(
            f"a place in the log is claimed for something that must not be logged: {error.problem}",
            file=claim_name(place),
            hint="no publisher writes such a claim: remove the object, and find out who wrote it",
        ) from error
    return leaf


def _bundles(log: Log, new: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the entry bundles that the new leaves are in."""
    first = log.size // WIDTH
    entries = [leaf for _, leaf in log.entries(first * WIDTH)] + list(new)
    for tile in tiles_of(log.size + len(new), 0, first):
        at = (tile.index - first) * WIDTH
        yield tile.bundle, pack_entries(entries[at : at + tile.width])


def keep_head(store: Store, head: Checkpoint) -> None:
    """Keep a head that is about to be superseded or signed again."""
    with suppress(OtherContentError):  # it was signed again since: what was signed first is kept
        store.create(old_checkpoint_name(head.size), head.text.encode())


def create_index(store: Store, leaf: bytes, place: int) -> None:
    """Say where a leaf is."""
    try:
        store.create(index_name(leaf), b"%d" % place)
    except OtherContentError:
        return  # only after damage to the index can a leaf be there twice: its first index counts


def create_same(store: Store, name: str, content: bytes) -> None:
    """Create an object that follows from the claims; who comes second finds the same bytes."""
    try:
        store.create(name, content)
    except OtherContentError as error:
        raise LogDamagedError(
            "the log is damaged: an object is not what follows from the entries before it",
            file=name,
            hint="`mbd log check` finds all damage; remove what is wrong, and the next entry writes it again",
        ) from error

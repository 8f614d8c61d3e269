"""Reading the log: its head, its entries, and proofs from a handful of tiles.

Nothing that is read is believed: the checkpoint must be signed by a trusted key, tiles must have the hashes that their
names promise, and a proof is handed out only if it leads to a signed root. A proof reads one tile for each level
of tiles, ⌈log₂₅₆ n⌉ of them (and, at the right edge, one more each).
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from mbd.errors import DataError, VerificationError
from mbd.log.checkpoint import Checkpoint, Inclusion, verify_checkpoint
from mbd.log.merkle import HASH_SIZE, consistency_proof, inclusion_proof, is_consistent, leaf_hash, range_root
from mbd.log.tiles import (
    CHECKPOINT,
    WIDTH,
    Tile,
    claim_name,
    index_name,
    node_in,
    old_checkpoint_name,
    split_hashes,
    tile_at,
    tiles_of,
    unpack_entries,
)
from mbd.storage.store import NotThereError, Store
from mbd.trust.trust_file import Trust

MOST_AT_ONCE = 32
"""entries that one checkpoint may add to the one before it, so that the first one with an entry is soon found"""
_LONGEST_NUMBER = 19


class LogDamagedError(VerificationError):
    """An object of the log is missing, or is not what follows from the rest: nothing can be logged until it is."""


def read_head(store: Store, trust: Trust) -> tuple[Checkpoint | None, str | None]:
    """Return the log's verified head and its tag; None and None for a log that has none yet."""
    try:
        data, tag = store.read_tagged(CHECKPOINT)
    except NotThereError:
        return None, None
    return verify_checkpoint(_decoded(data), trust), tag


class Log:
    """The log as of one verified checkpoint."""

    def __init__(self, store: Store, trust: Trust, head: Checkpoint | Literal["newest"] | None = "newest") -> None:
        """`head`: a verified checkpoint, or None for the log before its first; by default the newest is read."""
        self.store = store
        self.trust = trust
        self._head = read_head(store, trust)[0] if head == "newest" else head
        self._tiles: dict[Tile, Sequence[bytes]] = {}
        self._kept: dict[int, Checkpoint | None] = {}

    @property
    def head(self) -> Checkpoint:
        """The checkpoint; DataError if nothing has been logged yet."""
        if self._head is None:
            raise DataError(
                "nothing has been logged here yet", file=self.store.url, hint="`mbd publish` makes the first entry"
            )
        return self._head

    @property
    def size(self) -> int:
        """The number of entries."""
        return self._head.size if self._head else 0

    def place_of(self, leaf: bytes) -> int | None:
        """Return where a leaf is, or None if it is not in the log."""
        place = read_place(self.store, leaf)
        if place is None or place >= self.size:
            return None
        if self.entry(place) != leaf:
            raise _damaged(index_name(leaf), "the index names another entry's place")
        return place

    def entry(self, place: int) -> bytes:
        """Return the leaf at a place."""
        return self._bundle(tile_at(self.size, 0, place // WIDTH))[place % WIDTH]

    def entries(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield place and leaf of every entry from `start` on."""
        for tile in tiles_of(self.size, 0, start // WIDTH):
            places = range(tile.index * WIDTH, tile.index * WIDTH + tile.width)
            yield from (entry for entry in zip(places, self._bundle(tile), strict=True) if entry[0] >= start)

    def inclusion(self, place: int, leaf: bytes | None = None) -> Inclusion:
        """Return the proof of an entry, in the first checkpoint that has it; `leaf`: what has to be there."""
        if not 0 <= place < self.size:
            raise DataError("there is no such entry in the log", value=place, hint="`mbd log list` lists them")
        head = self.first_checkpoint_with(place)
        view = Log(self.store, self.trust, head)
        hashes = tuple(sibling.hex() for sibling in inclusion_proof(node_in(view.hashes), place, head.size))
        inclusion = Inclusion(index=place, tree_size=head.size, hashes=hashes, checkpoint=head.text)
        inclusion.verify(leaf or view.entry(place), self.trust)
        return inclusion

    def first_checkpoint_with(self, place: int) -> Checkpoint:
        """Return the oldest checkpoint that has an entry and that can still be trusted."""
        sizes = range(place + 1, min(place + MOST_AT_ONCE, self.size) + 1)  # a renewed head has an older one, too
        return next(filter(None, map(self.kept_checkpoint, sizes)), self.head)

    def kept_checkpoint(self, size: int) -> Checkpoint | None:
        """Return the checkpoint that was kept of a size, read once; None if there is none that can be trusted."""
        if size not in self._kept:
            try:
                kept = verify_checkpoint(_decoded(self.store.read(old_checkpoint_name(size))), self.trust)
                self._kept[size] = kept if kept.size == size else None
            except (NotThereError, VerificationError):
                self._kept[size] = None  # its key may be revoked by now: a later checkpoint has the entries as well
        return self._kept[size]

    def check_continues(self, older: Checkpoint) -> None:
        """Raise a VerificationError unless this log continues an older one."""
        if older.size > self.size:
            raise VerificationError(
                f"the log has shrunk: it had {older.size} entries at {older.time:%Y-%m-%d %H:%M:%SZ}, now {self.size}",
                hint="entries were removed: do not trust this log, and show both checkpoints to other verifiers",
            )
        if not self.continues(older.size, older.root):
            raise VerificationError(
                f"the log has been rewritten: its first {older.size} entries are not those it had "
                f"at {older.time:%Y-%m-%d %H:%M:%SZ}",
                hint="two signed checkpoints contradict each other: do not trust it, and show both to the others",
            )

    def continues(self, size: int, root: bytes) -> bool:
        """Return whether the first entries of this log are those of a tree of this size and root."""
        if size in (0, self.size):
            return size == 0 or root == self.head.root
        if size > self.size:
            return False
        proof = consistency_proof(node_in(self.hashes), size, self.size)
        return is_consistent(size, root, self.size, self.head.root, proof)

    def check_root(self) -> None:
        """Compare the tiles at the right edge with the root in the checkpoint."""
        if self.size and range_root(node_in(self.hashes), 0, self.size) != self.head.root:
            raise _damaged(CHECKPOINT, "the tiles do not lead to the root that is signed")

    def hashes(self, level: int, index: int) -> Sequence[bytes]:
        """Return the hashes in a tile of this tree."""
        tile = tile_at(self.size, level, index)
        if tile not in self._tiles:
            data, width = self._read(tile, tile.name, tile.full.name)
            if len(data) != width * HASH_SIZE:
                raise _damaged(tile.name, "a tile has not the hashes that its name promises")
            self._tiles[tile] = split_hashes(data)[: tile.width]
        return self._tiles[tile]

    def _bundle(self, tile: Tile) -> Sequence[bytes]:
        """Return the leaves of a tile of level 0, compared with the tile."""
        try:
            data, width = self._read(tile, tile.bundle, tile.full.bundle)
            there = unpack_entries(data)
        except ValueError as error:
            raise _damaged(tile.bundle, str(error)) from error
        entries = there[: tile.width]
        if len(there) != width or [leaf_hash(entry) for entry in entries] != list(self.hashes(0, tile.index)):
            raise _damaged(tile.bundle, "an entry is not the one that was hashed")
        return entries

    def _read(self, tile: Tile, name: str, full_name: str) -> tuple[bytes, int]:
        """Return an object's bytes, and how many hashes or entries its name promises."""
        try:
            return self.store.read(name), tile.width
        except NotThereError as error:
            if tile.width == WIDTH:
                raise _damaged(name, "a part of the log is missing") from error
        try:
            return self.store.read(full_name), WIDTH  # partial tiles may be cleared away once there is a full one
        except NotThereError as error:
            raise _damaged(name, "a part of the log is missing") from error


def read_claim(store: Store, place: int) -> bytes:
    """Return the leaf that has claimed a place; NotThereError if none has."""
    leaf = store.read(claim_name(place))
    if len(leaf) != HASH_SIZE:
        raise LogDamagedError(
            "the log is damaged: a claim is not a SHA-256",
            file=claim_name(place),
            hint="restore the object from a copy of the store",
        )
    return leaf


def read_place(store: Store, leaf: bytes) -> int | None:
    """Return what the index says of a leaf; None if it says nothing."""
    try:
        text = store.read(index_name(leaf))
    except NotThereError:
        return None
    if not text.isdigit() or len(text) > _LONGEST_NUMBER:
        raise _damaged(index_name(leaf), "the index is unreadable")
    return int(text)


def _decoded(note: bytes) -> str:
    try:
        return note.decode()
    except UnicodeDecodeError as error:
        raise _damaged(CHECKPOINT, "a checkpoint is unreadable") from error


def _damaged(name: str, how: str) -> LogDamagedError:
    return LogDamagedError(
        f"the log is damaged: {how}",
        file=name,
        hint="`mbd log check` finds all damage; restore the object from a copy of the store",
    )

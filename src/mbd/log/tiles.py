"""Names and contents of the log's objects (C2SP tlog-tiles).

A tile of level L holds up to 256 hashes of complete subtrees of 256^L leaves each. In a tree of n leaves level L has
⌊n / 256^L⌋ hashes: full tiles, and at the right edge a partial one whose name states its width, so that a tile of a
name never changes. Entry bundles hold the leaves of a tile of level 0, each with its length before it.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from mbd.log.merkle import HASH_SIZE, Node, complete_root, range_root

WIDTH = 256
LEVELS_IN_A_TILE = 8

PREFIX = "log/"
CHECKPOINT = f"{PREFIX}checkpoint"
CLAIMS = f"{PREFIX}claims/"
INDEX = f"{PREFIX}index/"
OLD_CHECKPOINTS = f"{PREFIX}checkpoints/"

TileHashes = Callable[[int, int], Sequence[bytes]]
"""(level, index) → the hashes in a tile"""


@dataclass(frozen=True, order=True)
class Tile:
    """The index of a tile, and how many hashes it holds."""

    level: int
    index: int
    width: int

    @property
    def name(self) -> str:
        """Its name in the store."""
        return f"{PREFIX}tile/{self.level}/{self._place}"

    @property
    def bundle(self) -> str:
        """The name of the entry bundle of the same leaves (level 0)."""
        return f"{PREFIX}tile/entries/{self._place}"

    @property
    def full(self) -> Self:
        """The same tile once it is full."""
        return type(self)(self.level, self.index, WIDTH)

    @property
    def _place(self) -> str:
        return number_path(self.index) + ("" if self.width == WIDTH else f".p/{self.width}")


def number_path(number: int) -> str:
    """Return a number in groups of three digits, all but the last with an x: 1234067 is x001/x234/067."""
    groups = [f"{number % 1000:03d}"]
    while number := number // 1000:
        groups.append(f"x{number % 1000:03d}")
    return "/".join(reversed(groups))


def claim_name(place: int) -> str:
    """Return the name of the object that says which leaf comes at a place."""
    return CLAIMS + number_path(place)


def index_name(leaf: bytes) -> str:
    """Return the name of the object that says at which place a leaf is."""
    return INDEX + leaf.hex()


def old_checkpoint_name(size: int) -> str:
    """Return the name under which a superseded checkpoint is kept."""
    return OLD_CHECKPOINTS + number_path(size)


def tile_at(size: int, level: int, index: int) -> Tile:
    """Return a tile as it is in a tree of `size` leaves."""
    return Tile(level, index, min(WIDTH, (size >> LEVELS_IN_A_TILE * level) - WIDTH * index))


def tiles_of(size: int, level: int, first: int = 0) -> Iterator[Tile]:
    """Yield the tiles of a level in a tree of `size` leaves, from the tile `first` on."""
    hashes = size >> LEVELS_IN_A_TILE * level
    for index in range(first, -(-hashes // WIDTH)):
        yield tile_at(size, level, index)


def right_edge(size: int) -> Iterator[Tile]:
    """Yield the last tile of every level if it is partial: these decide the root."""
    level = 0
    while hashes := size >> LEVELS_IN_A_TILE * level:
        if hashes % WIDTH:
            yield Tile(level, hashes // WIDTH, hashes % WIDTH)
        level += 1


def split_hashes(data: bytes) -> list[bytes]:
    """Return the hashes in a tile."""
    return [data[at : at + HASH_SIZE] for at in range(0, len(data), HASH_SIZE)]


def pack_entries(entries: Sequence[bytes]) -> bytes:
    """Return an entry bundle."""
    return b"".join(struct.pack(">H", len(entry)) + entry for entry in entries)


def unpack_entries(data: bytes) -> list[bytes]:
    """Return the entries in a bundle; ValueError if it is cut off."""
    entries, at = [], 0
    while at < len(data):
        if len(data) < at + 2 or len(data) < (end := at + 2 + struct.unpack_from(">H", data, at)[0]):
            raise ValueError("the entry bundle is cut off")
        entries.append(data[at + 2 : end])
        at = end
    return entries


class Edge:
    """The right edge of a growing tree: all that is needed to add leaves and to know the root."""

    def __init__(self, size: int, partial: dict[int, list[bytes]]) -> None:
        """`partial`: the hashes of the partial tiles of this size, by level."""
        self.size = size
        self._partial = {level: list(hashes) for level, hashes in partial.items()}

    def add(self, leaf: bytes) -> Iterator[tuple[Tile, bytes]]:
        """Add the hash of a leaf; yield the tiles that have become full by it."""
        self.size += 1
        level, new = 0, leaf
        while True:
            hashes = self._partial.setdefault(level, [])
            hashes.append(new)
            if len(hashes) < WIDTH:
                return
            yield Tile(level, (self.size >> LEVELS_IN_A_TILE * (level + 1)) - 1, WIDTH), b"".join(hashes)
            new = complete_root(hashes)
            self._partial[level] = []
            level += 1

    def partial_tiles(self) -> Iterator[tuple[Tile, bytes]]:
        """Yield the partial tiles of the tree as it is."""
        for tile in right_edge(self.size):
            yield tile, b"".join(self._partial[tile.level])

    @property
    def partial(self) -> dict[int, list[bytes]]:
        """The hashes of the partial tiles, by level: from these the tree can grow on."""
        return {tile.level: list(self._partial[tile.level]) for tile in right_edge(self.size)}

    @property
    def root(self) -> bytes:
        """The root hash."""
        return range_root(node_in(lambda level, _index: self._partial[level]), 0, self.size)


def node_in(hashes: TileHashes) -> Node:
    """Return the nodes of a tree whose tiles `hashes` gives: those between two levels of tiles are computed."""

    def node(level: int, index: int) -> bytes:
        tile_level, height = divmod(level, LEVELS_IN_A_TILE)
        tile, first = divmod(index << height, WIDTH)
        return complete_root(hashes(tile_level, tile)[first : first + (1 << height)])

    return node

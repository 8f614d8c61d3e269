"""Merkle tree hashes as in RFC 6962, section 2.1.

    leaf:  SHA-256(0x00 ‖ data)        node:  SHA-256(0x01 ‖ left ‖ right)        empty tree:  SHA-256("")

A tree of n > 1 leaves splits at k, the largest power of two below n. So every tree consists of *complete* subtrees:
the one at (level, index) covers the leaves from index·2^level on, 2^level of them, and never changes once it is full.
"""

import hashlib
from collections.abc import Callable, Sequence

HASH_SIZE = 32
EMPTY = hashlib.sha256(b"").digest()

Node = Callable[[int, int], bytes]
"""(level, index) → hash of the complete subtree there"""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf."""
    return hashlib.sha256(b"\x00" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees side by side."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def split(size: int) -> int:
    """Return k, the largest power of two below `size` (which is at least 2)."""
    return 1 << (size - 1).bit_length() - 1


def complete_root(hashes: Sequence[bytes]) -> bytes:
    """Return the root over 2^k hashes."""
    while len(hashes) > 1:
        hashes = [node_hash(left, right) for left, right in zip(hashes[::2], hashes[1::2], strict=True)]
    return hashes[0]


def range_root(node: Node, start: int, end: int) -> bytes:
    """Return the Merkle tree hash of the leaves start … end−1, where `start` is where such a subtree can begin."""
    size = end - start
    if size == 0:
        return EMPTY
    if size & size - 1 == 0:
        level = size.bit_length() - 1
        return node(level, start >> level)
    middle = start + split(size)
    return node_hash(range_root(node, start, middle), range_root(node, middle, end))

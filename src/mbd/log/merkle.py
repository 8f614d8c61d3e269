"""Merkle tree hashes as in RFC 6962, section 2.1, and proofs of inclusion and of consistency.

    leaf:  SHA-256(0x00 ‖ data)        node:  SHA-256(0x01 ‖ left ‖ right)        empty tree:  SHA-256("")

A tree of n > 1 leaves splits at k, the largest power of two below n. So every tree consists of *complete* subtrees:
the one at (level, index) covers the leaves from index·2^level on, 2^level of them, and never changes once it is full.

Proofs are made from the nodes of a tree (RFC 6962, 2.1.1, 2.1.2) and checked with nothing but hashes (RFC 9162,
2.1.3.2, 2.1.4.2). A proof has at most log₂ n + 1 hashes. The checks return the root that a proof leads to, or None
where its shape is wrong; comparing that root with the one in a signed checkpoint is the caller's part.
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


def inclusion_proof(node: Node, index: int, size: int) -> list[bytes]:
    """Return the hashes that lead from leaf `index` to the root of the first `size` leaves, its sibling first."""
    start, end = 0, size
    path = []
    while end - start > 1:
        middle = start + split(end - start)
        if index < middle:
            path.append(range_root(node, middle, end))
            end = middle
        else:
            path.append(range_root(node, start, middle))
            start = middle
    return path[::-1]


def consistency_proof(node: Node, old: int, new: int) -> list[bytes]:
    """Return the hashes that show that the first `old` of `new` leaves are those of the older tree (0 < old ≤ new)."""
    start, end = 0, new
    path = []
    while end != old:
        middle = start + split(end - start)
        if old <= middle:
            path.append(range_root(node, middle, end))
            end = middle
        else:
            path.append(range_root(node, start, middle))
            start = middle
    if start > 0:  # the old tree's own root is known to the verifier, a part of it is not
        path.append(range_root(node, start, end))
    return path[::-1]


def root_by_inclusion(leaf: bytes, index: int, size: int, hashes: Sequence[bytes]) -> bytes | None:
    """Return the root that a leaf's hash and its proof lead to; None if the proof cannot be one of this place."""
    if not 0 <= index < size:
        return None
    place, last = index, size - 1
    root = leaf
    for other in hashes:
        if last == 0:
            return None
        if place & 1 or place == last:
            root = node_hash(other, root)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            root = node_hash(root, other)
        place, last = place >> 1, last >> 1
    return root if last == 0 else None


def is_consistent(old: int, old_root: bytes, new: int, new_root: bytes, hashes: Sequence[bytes]) -> bool:
    """Return whether the proof shows that the tree of size `new` continues the one of size `old`."""
    if not 0 < old <= new:
        return False
    if old == new:
        return not hashes and old_root == new_root
    path = list(hashes)
    if old & old - 1 == 0:
        path.insert(0, old_root)
    if not path:
        return False
    place, last = old - 1, new - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    of_old = of_new = path[0]
    for other in path[1:]:
        if last == 0:
            return False
        if place & 1 or place == last:
            of_old, of_new = node_hash(other, of_old), node_hash(other, of_new)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            of_new = node_hash(of_new, other)
        place, last = place >> 1, last >> 1
    return last == 0 and of_old == old_root and of_new == new_root

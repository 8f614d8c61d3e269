"""Merkle trees: hashes, proofs of inclusion and consistency, against the definition in RFC 6962."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mbd.log.merkle import (
    EMPTY,
    Node,
    consistency_proof,
    inclusion_proof,
    is_consistent,
    leaf_hash,
    node_hash,
    range_root,
    root_by_inclusion,
)
from tests.trust.keys import leaf

SIZES = st.integers(1, 300)


def naive_root(leaves: list[bytes]) -> bytes:
    """MTH(D[n]) as the RFC defines it."""
    if not leaves:
        return EMPTY
    if len(leaves) == 1:
        return leaf_hash(leaves[0])
    k = 1
    while k * 2 < len(leaves):
        k *= 2
    return node_hash(naive_root(leaves[:k]), naive_root(leaves[k:]))


def naive_node(leaves: list[bytes]) -> Node:
    return lambda level, index: naive_root(leaves[index << level : (index + 1) << level])


LEAVES = [leaf(number) for number in range(300)]
NODE = naive_node(LEAVES)


def test_roots_are_those_that_other_implementations_of_rfc_6962_test_with() -> None:
    data = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]
    leaves = [bytes.fromhex(one) for one in data]
    for size, root in enumerate(roots, start=1):
        assert range_root(naive_node(leaves), 0, size).hex() == root == naive_root(leaves[:size]).hex()
    assert range_root(naive_node([]), 0, 0) == EMPTY


@settings(deadline=None, max_examples=200)
@given(size=SIZES, data=st.data())
def test_an_inclusion_proof_leads_to_the_root_from_its_own_place_only(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    root = naive_root(LEAVES[:size])
    proof = inclusion_proof(NODE, index, size)
    assert len(proof) <= size.bit_length()
    assert root_by_inclusion(leaf_hash(LEAVES[index]), index, size, proof) == root
    other = data.draw(st.integers(0, size - 1))
    assume(other != index)
    assert root_by_inclusion(leaf_hash(LEAVES[index]), other, size, proof) != root
    assert root_by_inclusion(leaf_hash(LEAVES[other]), index, size, proof) != root


@settings(deadline=None, max_examples=200)
@given(size=SIZES, data=st.data())
def test_a_changed_inclusion_proof_leads_elsewhere(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    root = naive_root(LEAVES[:size])
    proof = inclusion_proof(NODE, index, size)
    for changed in mutations(proof, data):
        assert root_by_inclusion(leaf_hash(LEAVES[index]), index, size, changed) != root
    for outside in (-1, size, size + 1):
        assert root_by_inclusion(leaf_hash(LEAVES[index]), outside, size, proof) is None


@settings(deadline=None, max_examples=200)
@given(new=SIZES, data=st.data())
def test_a_consistency_proof_binds_the_old_tree_to_the_new(new: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(1, new))
    old_root, new_root = naive_root(LEAVES[:old]), naive_root(LEAVES[:new])
    proof = consistency_proof(NODE, old, new)
    assert len(proof) <= new.bit_length() + 1
    assert is_consistent(old, old_root, new, new_root, proof)
    assert not is_consistent(old, leaf(-1), new, new_root, proof)
    assert not is_consistent(old, old_root, new, leaf(-1), proof)
    for changed in mutations(proof, data):
        assert not is_consistent(old, old_root, new, new_root, changed)


@settings(deadline=None, max_examples=100)
@given(new=st.integers(2, 300), data=st.data())
def test_no_proof_makes_a_rewritten_tree_consistent(new: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(1, new - 1))
    rewritten = list(LEAVES[:new])
    rewritten[data.draw(st.integers(0, old - 1))] = leaf(-1)
    new_root = naive_root(rewritten)
    for tree in (LEAVES, rewritten):
        proof = consistency_proof(naive_node(tree), old, new)
        assert not is_consistent(old, naive_root(LEAVES[:old]), new, new_root, proof)


@pytest.mark.parametrize(("old", "new"), [(0, 5), (-1, 5), (6, 5)])
def test_sizes_that_cannot_be_are_not_consistent(old: int, new: int) -> None:
    assert not is_consistent(old, EMPTY, new, naive_root(LEAVES[:new]), [])


def mutations(proof: list[bytes], data: st.DataObject) -> list[list[bytes]]:
    """Return proofs that are all unlike `proof`."""
    longer = [*proof, leaf(-1)]
    if not proof:
        return [longer]
    at = data.draw(st.integers(0, len(proof) - 1))
    bit = data.draw(st.integers(0, 255))
    flipped = bytearray(proof[at])
    flipped[bit // 8] ^= 1 << bit % 8
    return [
        longer,
        [leaf(-1), *proof],
        proof[:-1],
        proof[1:],
        [*proof[:at], bytes(flipped), *proof[at + 1 :]],
        *([proof[::-1]] if len(proof) > 1 else []),
    ]

"""Tiles: names and contents of C2SP tlog-tiles, and the right edge that grows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.log.merkle import leaf_hash, range_root
from mbd.log.tiles import (
    Edge,
    Tile,
    number_path,
    pack_entries,
    right_edge,
    split_hashes,
    tile_at,
    tiles_of,
    unpack_entries,
)
from tests.log.test_merkle import LEAVES, naive_node
from tests.trust.keys import leaf


def test_names_are_those_of_the_specification() -> None:
    assert number_path(1234067) == "x001/x234/067"
    assert number_path(0) == "000"
    assert number_path(1000) == "x001/000"
    assert Tile(0, 1234067, 256).name == "log/tile/0/x001/x234/067"
    assert Tile(2, 5, 17).name == "log/tile/2/005.p/17"
    assert Tile(0, 5, 17).bundle == "log/tile/entries/005.p/17"
    assert Tile(0, 5, 17).full.bundle == "log/tile/entries/005"


def test_a_tree_of_70_000_leaves_has_the_tiles_of_the_specification() -> None:
    size = 70_000
    by_level = {level: list(tiles_of(size, level)) for level in range(4)}
    assert [tile.width for tile in by_level[0]] == [256] * 273 + [112]
    assert [tile.width for tile in by_level[1]] == [256, 17]
    assert [tile.width for tile in by_level[2]] == [1]
    assert by_level[3] == []
    assert list(right_edge(size)) == [Tile(0, 273, 112), Tile(1, 1, 17), Tile(2, 0, 1)]
    assert list(right_edge(256)) == [Tile(1, 0, 1)]
    assert list(right_edge(0)) == []
    assert tile_at(size, 0, 272) == Tile(0, 272, 256)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.binary(max_size=70), max_size=20))
def test_entry_bundles_are_read_as_they_were_written(entries: list[bytes]) -> None:
    packed = pack_entries(entries)
    assert unpack_entries(packed) == entries
    if entries:
        with pytest.raises(ValueError, match="cut off"):
            unpack_entries(packed[:-1])


@settings(deadline=None, max_examples=30)
@given(start=st.integers(0, 300), more=st.integers(0, 300))
def test_an_edge_knows_the_root_wherever_it_was_taken_up(start: int, more: int) -> None:
    edge = Edge(0, {})
    for one in LEAVES[:start]:
        list(edge.add(leaf_hash(one)))
    partial = {tile.level: split_hashes(content) for tile, content in edge.partial_tiles()}
    again = Edge(start, partial)
    for one in LEAVES[start : start + more]:
        list(again.add(leaf_hash(one)))
    assert again.root == range_root(naive_node(LEAVES), 0, again.size)


def test_full_tiles_come_once_with_the_hashes_of_the_level_below() -> None:
    edge = Edge(0, {})
    size = 256 * 256 + 256 + 3
    full = [tile for number in range(size) for tile in edge.add(leaf_hash(leaf(number)))]
    contents = dict(full)
    assert len(contents) == len(full) == 257 + 1
    assert contents[Tile(0, 1, 256)] == b"".join(leaf_hash(leaf(number)) for number in range(256, 512))
    node = naive_node([leaf(number) for number in range(512)])
    assert split_hashes(contents[Tile(1, 0, 256)])[:2] == [node(8, 0), node(8, 1)]
    assert [tile for tile, _ in edge.partial_tiles()] == [Tile(0, 257, 3), Tile(1, 1, 1), Tile(2, 0, 1)]

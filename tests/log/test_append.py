"""Appending: one order, one entry for each leaf; killed anywhere, many at once."""

import math
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from mbd.errors import UsageError, VerificationError
from mbd.log.append import append_leaf
from mbd.log.reader import LogDamagedError
from mbd.log.tiles import Tile, claim_name, index_name, old_checkpoint_name
from mbd.storage.store import Store
from tests.certificate.killing import CountingStore, Moment, killed_at, side_by_side
from tests.log.build import LogLocation, assert_whole, log_of
from tests.refusals import refused
from tests.trust.keys import Keys, keys_in, leaf


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> LogLocation:
    return log_of(tmp_path_factory.mktemp("three"), 3)


@pytest.fixture(scope="module")
def full_tile_next(tmp_path_factory: pytest.TempPathFactory) -> LogLocation:
    return log_of(tmp_path_factory.mktemp("full"), 255)


def test_entries_come_one_after_the_other_with_a_proof_each(tmp_path: Path) -> None:
    place = log_of(tmp_path, 0)
    for number in range(5):
        inclusion = place.append(number)
        assert (inclusion.index, inclusion.tree_size) == (number, number + 1)
        logged = inclusion.verify(leaf(number), place.keys.trust)
        assert logged.index == number
        with pytest.raises(VerificationError, match="not in the log"):
            inclusion.verify(leaf(number + 1), place.keys.trust)
    assert_whole(place, set(range(5)))


def test_a_leaf_that_is_there_gets_the_proof_that_it_got_then(three: LogLocation, tmp_path: Path) -> None:
    place = three.copy(tmp_path / "store")
    first = place.append(3)
    place.append(4)
    assert place.append(3) == first
    assert place.log.size == 5


def test_what_others_have_claimed_is_carried_out_first(three: LogLocation, tmp_path: Path) -> None:
    place = three.copy(tmp_path / "store")
    for number in (3, 4):
        place.store.create(claim_name(number), leaf(number))  # their writers were killed
    assert place.append(5).index == 5
    assert place.append(4).index == 4
    assert_whole(place, set(range(6)))


def test_a_leaf_that_was_claimed_and_not_carried_out_is_taken_up(three: LogLocation, tmp_path: Path) -> None:
    place = three.copy(tmp_path / "store")
    place.store.create(claim_name(3), leaf(9))
    assert place.append(9).index == 3
    assert_whole(place, {0, 1, 2, 9})


def test_more_claims_than_one_checkpoint_takes(tmp_path: Path) -> None:
    place = log_of(tmp_path, 100)
    assert [place.file(old_checkpoint_name(size)).exists() for size in (32, 64, 96)] == [True] * 3
    for number in (0, 31, 32, 99):
        inclusion = place.append(number)
        assert inclusion.index == number
        assert inclusion.tree_size == min(100, (number // 32 + 1) * 32)
    assert_whole(place, set(range(100)))


@pytest.mark.slow
def test_the_cost_of_an_append_does_not_grow_with_the_log(tmp_path: Path) -> None:
    costs = {}
    for size in (1, 200, 2000):
        place = log_of(tmp_path / str(size), size)
        store = CountingStore(place.store)
        place.append(size, cast("Store", store))
        costs[size] = len(store.operations)
        store.operations.clear()
        place.append(0, cast("Store", store))
        assert len(store.operations) <= 40  # at worst every size up to the end of its batch is asked for
    assert costs[200] == costs[1]
    assert costs[2000] <= costs[1] + 4 * math.ceil(math.log(2000, 256))


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_operation_another_one_writes_and_then_it_runs_again(
    three: LogLocation, tmp_path: Path, moment: Moment
) -> None:
    for operation in count(1):
        place = three.copy(tmp_path / str(operation))
        if not killed_at(operation, moment, place.open_store, place.append_to(3)):
            break
        place.append(4)
        place.append(3)
        assert_whole(place, set(range(5)))
    assert operation > 12


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_operation_that_fills_a_tile(full_tile_next: LogLocation, tmp_path: Path, moment: Moment) -> None:
    for operation in count(1):
        place = full_tile_next.copy(tmp_path / str(operation), linked=True)
        if not killed_at(operation, moment, place.open_store, place.append_to(255)):
            break
        place.append(255)
        place.append(256)
        assert place.log.size == 257
        place.log.check_root()
        for number in (0, 255, 256):
            place.log.inclusion(number, leaf(number))
    assert place.file(Tile(0, 0, 256).name).exists()
    assert operation > 12


def test_sixteen_writers_at_once_give_one_order_and_one_entry_for_each_leaf(tmp_path: Path) -> None:
    place = log_of(tmp_path, 0)
    own = list(range(16))
    shared = 100

    def write(number: int) -> None:
        for leaf_number in (shared, number, 200 + number // 2):
            inclusion = place.append(leaf_number)
            inclusion.verify(leaf(leaf_number), place.keys.trust)

    side_by_side([lambda number=number: write(number) for number in own])  # type: ignore[misc]
    assert_whole(place, {shared, *own, *range(200, 208)})


@pytest.mark.slow
def test_writers_that_are_killed_among_others_do_not_disturb_them(tmp_path: Path) -> None:
    place = log_of(tmp_path, 0)

    def dies(operation: int) -> None:
        assert killed_at(operation, "before", place.open_store, place.append_to(operation))

    side_by_side(
        [lambda operation=operation: dies(operation) for operation in range(3, 11)]
        + [place.append_to(number) for number in range(20, 24)]
    )
    for number in range(3, 11):
        place.append(number)
    assert_whole(place, {*range(3, 11), *range(20, 24)})


def test_a_damaged_log_is_not_continued(three: LogLocation, tmp_path: Path) -> None:
    for name, content in [
        (Tile(0, 0, 3).name, bytes(96)),
        (Tile(0, 0, 3).name, b"short"),
        (Tile(0, 0, 3).bundle, b"\x00\x20" + bytes(32)),
        (Tile(0, 0, 4).name, bytes(128)),  # another writer's idea of the next entry
        (claim_name(3), b"short"),
        ("log/checkpoint", b"\xff"),
    ]:
        place = three.copy(tmp_path / name.replace("/", "-") / content.hex()[:8])
        place.file(name).parent.mkdir(parents=True, exist_ok=True)
        place.file(name).write_bytes(content)
        with refused(LogDamagedError):
            place.append(3)


def test_an_index_that_names_another_place_is_noticed(three: LogLocation, tmp_path: Path) -> None:
    place = three.copy(tmp_path / "store")
    place.file(index_name(leaf(1))).write_bytes(b"2")
    with refused(VerificationError, match="not in the log"):
        place.append(1)
    for unreadable in (b"x", b"9" * 5000):
        place.file(index_name(leaf(1))).write_bytes(unreadable)
        with refused(LogDamagedError, file=index_name(leaf(1))):
            place.append(1)


def test_only_the_logs_own_key_appends(three: LogLocation, tmp_path: Path) -> None:
    other = keys_in(tmp_path)
    for keys in (other, Keys(three.keys.folder)):
        with refused(UsageError, key="certificate.log_signer"):
            append_leaf(three.store, leaf(9), keys.signer(), three.keys.trust)

"""Reading: proofs from a few tiles, and nothing believed that is not signed."""

from datetime import timedelta
from pathlib import Path
from typing import cast
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.errors import DataError, MbdError, VerificationError
from mbd.log.checkpoint import Inclusion, verify_checkpoint
from mbd.log.reader import Log
from mbd.log.tiles import CHECKPOINT, WIDTH, Tile, claim_name
from mbd.storage.store import Store
from mbd.trust.keys import revoke_key, rotate_key
from tests.certificate.killing import CountingStore
from tests.log.build import LogLocation, another_machine, log_of, refused_as_shrunk, refused_as_untrusted
from tests.refusals import refused
from tests.trust.keys import leaf


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> LogLocation:
    return log_of(tmp_path_factory.mktemp("log"), 700)


def test_every_entry_is_found_and_proven(place: LogLocation) -> None:
    log = place.log
    assert [entry for _, entry in log.entries()] == [leaf(number) for number in range(700)]
    assert [index for index, _ in log.entries(690)] == list(range(690, 700))
    for number in (0, 1, 255, 256, 511, 512, 699):
        assert log.entry(number) == leaf(number)
        assert log.place_of(leaf(number)) == number
        log.inclusion(number).verify(leaf(number), place.keys.trust)
    assert log.place_of(leaf(700)) is None
    for outside in (-1, 700):
        with refused(DataError, value=outside):
            log.inclusion(outside)


def test_a_proof_reads_few_objects(place: LogLocation) -> None:
    store = CountingStore(place.store)
    log = Log(cast("Store", store), place.keys.trust)
    store.operations.clear()
    log.inclusion(699, leaf(699))
    assert len(store.operations) <= 4


def test_a_checkpoint_is_read_once_for_all_its_entries(place: LogLocation) -> None:
    store = CountingStore(place.store)
    log = Log(cast("Store", store), place.keys.trust)
    store.operations.clear()
    assert all(number < log.first_checkpoint_with(number).size <= 700 for number in range(700))
    assert len(store.operations) <= 700


def test_a_log_without_entries(tmp_path: Path) -> None:
    empty = log_of(tmp_path, 0)
    assert empty.log.size == 0
    assert list(empty.log.entries()) == []
    with refused(DataError, file=empty.store.url):
        _ = empty.log.head


def test_a_log_continues_every_checkpoint_it_has_signed(tmp_path: Path) -> None:
    place = log_of(tmp_path, 0)
    seen = [verify_checkpoint(place.append(number).checkpoint, place.keys.trust) for number in range(6)]
    assert [older.size for older in seen] == [1, 2, 3, 4, 5, 6]
    for older in seen:
        place.log.check_continues(older)
        assert place.log.continues(older.size, older.root)
        assert not place.log.continues(older.size, leaf(99))


def test_a_log_that_has_shrunk_or_was_rewritten_is_noticed(tmp_path: Path) -> None:
    place = log_of(tmp_path, 3)
    kept = verify_checkpoint(place.append(3).checkpoint, place.keys.trust)
    forked = LogLocation(tmp_path / "fork", place.keys)
    with another_machine(tmp_path / "another"):
        for number in (0, 1, 2, 99, 100):
            forked.append(number)
    with pytest.raises(VerificationError, match="rewritten"):
        forked.log.check_continues(kept)
    short = LogLocation(tmp_path / "short", place.keys)
    with another_machine(tmp_path / "a third"):
        short.append(0)
    with refused_as_shrunk():
        short.log.check_continues(kept)


def test_partial_tiles_may_be_cleared_away_once_they_are_full(tmp_path: Path) -> None:
    place = log_of(tmp_path, 5)
    before = place.append(4)
    with patch("os.fsync"):
        for number in range(5, 256):
            place.store.create(claim_name(number), leaf(number))
        place.append(256)
    for partial in place.file("log/tile").rglob("000.p/*"):
        if "tile/1" not in str(partial):
            partial.unlink()
    assert place.append(4) == before


def test_what_a_revoked_key_of_the_log_has_proven_is_proven_again_by_the_next(tmp_path: Path) -> None:
    place = log_of(tmp_path, 2)
    old = place.append(1)
    rotate_key(place.keys.folder, "log", overlap=timedelta(days=1))
    place.append(2)
    first = place.keys.trust.keys_for("log")[0]
    revoke_key(place.keys.folder / "trust.json", first.id, "lost", None)
    with refused_as_untrusted("revoked"):
        old.verify(leaf(1), place.keys.trust)
    new = place.append(1)
    assert (new.index, new.tree_size) == (1, 3)
    new.verify(leaf(1), place.keys.trust)


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_no_changed_byte_of_tiles_or_head_goes_unnoticed(
    place: LogLocation, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    number = data.draw(st.sampled_from([0, 300, 512, 699]))
    index = number // WIDTH
    width = WIDTH if index < 2 else 700 - 2 * WIDTH
    name = data.draw(st.sampled_from([Tile(0, index, width).name, Tile(0, index, width).bundle, CHECKPOINT]))
    original = place.file(name).read_bytes()
    at = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[at]))

    class Changed(CountingStore):
        def read(self, name_asked: str, **options: object) -> bytes:
            return self.read_tagged(name_asked)[0]

        def read_tagged(self, name_asked: str) -> tuple[bytes, str]:
            content, tag = place.store.read_tagged(name_asked)
            changed = original[:at] + bytes([byte]) + original[at + 1 :]
            return (changed if name_asked == name else content), tag

    def walk(store: object) -> None:
        log = Log(cast("Store", store), place.keys.trust)
        log.check_root()
        assert log.entry(number) == leaf(number)
        log.inclusion(number)

    walk(place.store)
    with pytest.raises(MbdError):
        walk(Changed(place.store))
        changed_log = Log(cast("Store", Changed(place.store)), place.keys.trust)
        for other in range(index * WIDTH, index * WIDTH + width):
            changed_log.inclusion(other)


@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_no_changed_proof_is_accepted(place: LogLocation, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 699))
    log = place.log
    inclusion, other = log.inclusion(number), log.inclusion((number + 1) % 700)
    hashes = inclusion.hashes
    at = data.draw(st.integers(0, len(hashes) - 1))
    digit = data.draw(st.sampled_from("0123456789abcdef").filter(lambda value: value != hashes[at][0]))
    for change in (
        {"index": other.index},
        {"tree_size": inclusion.tree_size + 1},
        {"hashes": (*hashes[:at], digit + hashes[at][1:], *hashes[at + 1 :])},
        {"hashes": hashes[:at] + hashes[at + 1 :]},
        {"hashes": other.hashes if other.hashes != hashes else ()},
    ):
        changed = Inclusion.model_validate(inclusion.model_dump() | change)
        with pytest.raises(VerificationError):
            changed.verify(leaf(number), place.keys.trust)

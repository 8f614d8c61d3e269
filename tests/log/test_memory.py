"""What a machine remembers of a log, by its origin: an older copy is refused, and no second history is signed."""

import shutil
from itertools import count
from pathlib import Path

import pytest

from mbd.errors import MbdError, VerificationError
from mbd.log.append import open_to_sign
from mbd.log.check import adopt_log, renew_head
from mbd.log.memory import LogMemory, head_of, read_memory
from mbd.log.reader import Log
from mbd.log.tiles import CHECKPOINT, claim_name, old_checkpoint_name
from mbd.trust.trust_file import Trust
from tests.certificate.killing import killed_at
from tests.log.build import (
    LogLocation,
    another_machine,
    assert_whole,
    log_of,
    refused_as_copy,
    refused_as_shrunk,
    refused_as_unknown,
)
from tests.trust.keys import leaf


def plain_copy(place: LogLocation, to: Path) -> LogLocation:
    """Copy a log as anybody can: no machine hears of it."""
    shutil.copytree(place.folder, to, symlinks=True)
    return LogLocation(to, place.keys)


def linked(place: LogLocation, to: Path) -> LogLocation:
    to.symlink_to(place.folder)
    return LogLocation(to, place.keys)


def put_back(place: LogLocation, copy: LogLocation) -> None:
    shutil.rmtree(place.folder)
    shutil.copytree(copy.folder, place.folder)


@pytest.mark.parametrize("spelling", ["the same", "a link", "another path"])
def test_a_log_that_was_rolled_back_is_not_continued_under_any_spelling(tmp_path: Path, spelling: str) -> None:
    place = log_of(tmp_path, 2)
    backup = plain_copy(place, tmp_path / "backup")
    place.append(2)
    put_back(place, backup)
    if spelling == "a link":
        place = linked(place, tmp_path / "link")
    elif spelling == "another path":
        (tmp_path / "store").rename(tmp_path / "elsewhere")
        place = LogLocation(tmp_path / "elsewhere", place.keys)
    with refused_as_copy() if spelling == "another path" else refused_as_shrunk():
        place.append(9)
    assert place.log.size == 2
    assert not place.file(claim_name(2)).exists()


def test_two_heads_of_one_size_are_never_both_signed(tmp_path: Path) -> None:
    place = log_of(tmp_path, 2)
    backup = plain_copy(place, tmp_path / "backup")
    place.append(2)
    with refused_as_copy():
        backup.append(9)
    with refused_as_copy():
        renew_head(backup.store, place.keys.log, place.keys.trust)
    with another_machine(tmp_path / "another"):
        with refused_as_unknown():
            backup.append(9)
        assert Log(backup.store, place.keys.trust).size == 2  # to have read it is not enough
        with refused_as_unknown():
            renew_head(backup.store, place.keys.log, place.keys.trust)


@pytest.mark.parametrize("further", [1, 2])
def test_two_processes_that_are_shown_two_claims_of_a_place_do_not_both_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, further: int
) -> None:
    """One has read what is remembered, and the other signs before it does itself."""
    place = log_of(tmp_path, 2)
    backup = plain_copy(place, tmp_path / "backup")
    overtaken = list(range(9, 9 + further))

    def read_and_be_overtaken(trust: Trust) -> LogMemory:
        memory = read_memory(trust)
        while overtaken:
            backup.append(overtaken.pop())
        return memory

    monkeypatch.setattr("mbd.log.append.read_memory", read_and_be_overtaken)
    with pytest.raises(VerificationError, match=r"gone on elsewhere|has signed another head"):
        place.append(2)
    assert place.log.size == 2
    assert backup.log.size == 2 + further


def test_a_log_without_entries_is_begun_without_a_word(tmp_path: Path) -> None:
    place = log_of(tmp_path, 0)
    assert place.append(0).index == 0
    assert place.append(1).index == 1


def test_projects_with_keys_of_their_own_do_not_hinder_each_other_on_one_machine(tmp_path: Path) -> None:
    first, second = log_of(tmp_path / "a clone", 2), log_of(tmp_path / "another clone", 0)
    for number in range(3):
        assert second.append(number).index == number
        assert first.append(number + 2).index == number + 2
    assert_whole(second, {0, 1, 2})


def test_a_second_store_for_the_same_keys_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    place = log_of(tmp_path, 2)
    empty = LogLocation(tmp_path / "second", place.keys)
    with refused_as_copy() as caught:
        empty.append(0)
    assert "`mbd keys new --out DIR`" in (caught.value.hint or "")
    assert list(empty.store.list()) == []


def test_a_log_is_taken_up_only_if_it_fits_all_signed_checkpoints_in_the_store(tmp_path: Path) -> None:
    place = log_of(tmp_path, 3)
    place.append(3)
    older = plain_copy(place, tmp_path / "older")
    place.append(4)
    with another_machine(tmp_path / "another"):
        older.file(old_checkpoint_name(5)).write_bytes(place.file(CHECKPOINT).read_bytes())
        with pytest.raises(VerificationError, match="a signed checkpoint of size 5, and the log has 4 entries"):
            adopt_log(older.store, place.keys.trust)
        assert adopt_log(place.store, place.keys.trust).size == 5
        assert place.append(5).index == 5
    assert place.append(6).index == 6
    assert_whole(place, set(range(7)))


def test_killed_before_the_head_moves_a_machine_signs_nothing_else_of_that_size(tmp_path: Path) -> None:
    """The head may have been served before it was lost: a store that shows another claim in its place is found out."""
    original = log_of(tmp_path, 2)
    for operation in count(1):
        place = original.copy(tmp_path / f"copy-{operation}")
        assert killed_at(operation, "before", place.open_store, place.append_to(2))
        if read_memory(place.keys.trust).signed != head_of(original.log):
            break
    assert place.log.size == 2
    claim = place.file(claim_name(2))
    claim.unlink()
    with pytest.raises(VerificationError, match="has signed another head of size 3"):
        place.append(9)
    claim.write_bytes(leaf(2))
    assert place.append(9).index == 3
    assert_whole(place, {0, 1, 2, 9})


def test_a_copy_that_is_to_count_is_taken_up_instead(tmp_path: Path) -> None:
    place = log_of(tmp_path, 2)
    other = plain_copy(place, tmp_path / "copy")
    other.append(2)
    with refused_as_copy() as caught:
        open_to_sign(place.store, place.keys.trust)
    assert other.store.url in caught.value.problem
    adopt_log(place.store, place.keys.trust, instead=True)
    place.append(7)
    with refused_as_copy():
        open_to_sign(other.store, place.keys.trust)


def test_where_nothing_can_be_remembered_nothing_is_signed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = log_of(tmp_path, 0)
    with another_machine(tmp_path / "file"), pytest.raises(MbdError, match="cannot be remembered"):
        place.append(0)
    assert list(place.store.list()) == []

"""Checking a whole log, and repairing what can be computed from the rest."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.errors import MbdError, VerificationError
from mbd.log.check import LogReport, Repaired, check_log, repair_log
from mbd.log.checkpoint import verify_checkpoint
from mbd.log.tiles import CHECKPOINT, Tile, claim_name, index_name, old_checkpoint_name
from mbd.trust.keys import revoke_key, rotate_key
from tests.log.build import LogLocation, another_machine, assert_whole, log_of, refused_as_untrusted
from tests.trust.keys import leaf


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> LogLocation:
    place = log_of(tmp_path_factory.mktemp("log"), 260)
    place.append(260)
    return place


def report(place: LogLocation) -> LogReport:
    return check_log(place.store, place.keys.trust)


def test_a_good_log_has_no_problems(place: LogLocation) -> None:
    found = report(place)
    assert (found.size, found.problems, found.pending, found.old_checkpoints) == (261, [], 0, 9)
    assert check_log(place.store, place.keys.trust, since=place.log.head).problems == []


def test_certificates_are_compared_with_their_entries(tmp_path: Path) -> None:
    import hashlib

    from mbd.log.append import append_leaf

    place = log_of(tmp_path, 1)
    for envelope in (b"first", b"second"):
        append_leaf(place.store, hashlib.sha256(envelope).digest(), place.keys.log, place.keys.trust)
        place.store.create(f"certificates/{hashlib.sha256(envelope).hexdigest()}", envelope)

    def found() -> LogReport:
        return check_log(place.store, place.keys.trust, certificate_name=lambda digest: f"certificates/{digest}")

    withheld, *more = found().problems
    assert (found().certificates, withheld.startswith("certificate of entry 0"), more) == (2, True, [])
    place.file(f"certificates/{hashlib.sha256(b'first').hexdigest()}").write_bytes(b"other")
    assert found().certificates == 1
    assert "certificate of entry 1" in found().problems[1]


def test_a_claim_that_no_append_would_accept_is_named(tmp_path: Path) -> None:
    place = log_of(tmp_path, 2)
    place.store.create(claim_name(2), leaf(7))

    def refuse(claimed: bytes) -> None:
        assert claimed == leaf(7)
        raise VerificationError("no statement")

    report = check_log(place.store, place.keys.trust, check=refuse)
    assert (report.pending, report.problems) == (1, ["the claim of place 2 would be refused: no statement"])


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        (Tile(0, 0, 256).name, None, "missing"),
        (Tile(0, 0, 256).name, bytes(8192), "not the one that was hashed"),
        (Tile(1, 0, 1).name, bytes(32), "does not hold the hashes"),
        (Tile(1, 0, 1).name, None, "missing"),
        (Tile(0, 1, 5).name, bytes(160), "not the one that was hashed"),
        (Tile(0, 1, 5).bundle, b"\x00\x01a" * 5, "not the one that was hashed"),
        (Tile(0, 1, 5).bundle, b"\x00", "cut off"),
        (old_checkpoint_name(256), b"nonsense", "cannot be trusted"),
        (claim_name(7), leaf(8), "claim of place 7 is of another entry"),
        (claim_name(7), None, "claim of place 7 is missing"),
        (index_name(leaf(7)), None, "entry 7 is missing in the index"),
        (index_name(leaf(7)), b"8", "entry 7 is the same as entry 8"),
        (index_name(leaf(7)), b"?", "unreadable"),
    ],
)
def test_every_kind_of_damage_is_found(
    place: LogLocation, tmp_path: Path, name: str, content: bytes | None, problem: str
) -> None:
    damaged = place.copy(tmp_path / "store")
    if content is None:
        damaged.file(name).unlink()
    else:
        damaged.file(name).write_bytes(content)
    assert any(problem in found for found in report(damaged).problems), report(damaged).problems


def test_a_checkpoint_kept_elsewhere_shows_a_rewritten_log(tmp_path: Path) -> None:
    place = log_of(tmp_path, 3)
    forked = LogLocation(tmp_path / "fork", place.keys)
    with another_machine(tmp_path / "another"):
        for number in (0, 1, 99, 100):
            forked.append(number)
    problems = check_log(forked.store, place.keys.trust, since=place.log.head).problems
    assert problems == ["the checkpoint of size 3 does not fit to the entries"]
    problems = check_log(place.store, place.keys.trust, since=forked.log.head).problems
    assert problems == ["there is a signed checkpoint of size 4, and the log has 3 entries"]


def test_an_untrusted_head_is_an_error(place: LogLocation, tmp_path: Path) -> None:
    damaged = place.copy(tmp_path / "store")
    damaged.file(CHECKPOINT).write_text(place.log.head.text.replace("261", "262"))
    with refused_as_untrusted("signature is wrong", VerificationError):
        report(damaged)


def _lose_index(place: LogLocation) -> None:
    place.file(index_name(leaf(1))).unlink()


def _lose_claim(place: LogLocation) -> None:
    place.file(claim_name(1)).unlink()


def _die_after_the_claim(place: LogLocation) -> None:
    place.store.create(claim_name(3), leaf(3))


@pytest.mark.parametrize(
    ("damage", "repaired"),
    [
        (_lose_index, Repaired(signed_again=False, indexed=1, carried_out=0)),
        (_lose_claim, Repaired(signed_again=False, indexed=0, carried_out=0)),
        (_die_after_the_claim, Repaired(signed_again=False, indexed=0, carried_out=1)),
    ],
)
def test_what_can_be_computed_from_the_rest_is_repaired(
    tmp_path: Path, damage: Callable[[LogLocation], None], repaired: Repaired
) -> None:
    place = log_of(tmp_path, 3)
    damage(place)
    assert repair_log(place.store, place.keys.log, place.keys.trust) == repaired
    assert_whole(place, {0, 1, 2, 3} if repaired.carried_out else {0, 1, 2})


def test_a_head_whose_key_was_revoked_is_signed_again(tmp_path: Path) -> None:
    place = log_of(tmp_path, 3)
    before = verify_checkpoint(place.log.head.text, place.keys.trust)
    revoke_key(place.keys.folder / "trust.json", "log", "lost", None)
    rotate_key(place.keys.folder, "log", overlap=timedelta(days=1))
    with refused_as_untrusted("revoked"):
        place.append(3)
    assert repair_log(place.store, place.keys.log, place.keys.trust).signed_again
    assert place.log.head.root == before.root
    assert place.append(3).index == 3
    assert_whole(place, set(range(4)))


def test_a_head_that_was_kept_already_may_be_signed_again(tmp_path: Path) -> None:
    place = log_of(tmp_path, 3)
    place.store.create(old_checkpoint_name(3), place.log.head.text.encode())  # a writer was killed before the swap
    revoke_key(place.keys.folder / "trust.json", "log", "lost", None)
    rotate_key(place.keys.folder, "log", overlap=timedelta(days=1))
    repair_log(place.store, place.keys.log, place.keys.trust)
    place.append(3)
    assert place.append(1).tree_size == 4  # the kept checkpoint of size 3 is the revoked key's
    assert_whole(place, set(range(4)))


def test_a_damaged_log_is_not_signed_again(tmp_path: Path) -> None:
    place = log_of(tmp_path, 3)
    revoke_key(place.keys.folder / "trust.json", "log", "lost", None)
    rotate_key(place.keys.folder, "log", overlap=timedelta(days=1))
    place.file(Tile(0, 0, 3).name).write_bytes(bytes(96))
    with pytest.raises(MbdError, match="cannot be signed again"):
        repair_log(place.store, place.keys.log, place.keys.trust)

"""A folder of keys: made, kept, rotated and revoked, also after a kill."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from mbd.errors import UsageError
from mbd.records import now
from mbd.trust import keys
from mbd.trust.keys import add_key, find_key, make_keys, revoke_key, rotate_key, set_threshold
from mbd.trust.public_keys import key_id, public_pem
from mbd.trust.trust_file import may_sign, read_trust
from tests.refusals import refused
from tests.trust.keys import Keys, keys_in

DAY = timedelta(days=1)


def test_the_first_keys_come_with_a_log(tmp_path: Path) -> None:
    trust = make_keys(tmp_path, "signer")
    assert {(key.name, key.purpose) for key in trust.keys} == {("signer", "certificate"), ("log", "log")}
    assert trust.log_origin == f"missing-by-design/{trust.keys_for('log')[0].id[:16]}"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "lineage.key",
        "log.pem",
        "log.pub",
        "request.key",
        "signer.pem",
        "signer.pub",
        "trust.json",
    ]


def test_another_holder_is_added_and_the_rest_stays(tmp_path: Path) -> None:
    before = make_keys(tmp_path, "ann", origin="example.org/deletions")
    after = make_keys(tmp_path, "bob", days=30)
    assert after.keys[:2] == before.keys
    assert after.keys[2].valid_until == after.keys[2].valid_from + timedelta(days=30)
    assert after.log_origin == "example.org/deletions"
    with refused(UsageError, key="--origin"):
        make_keys(tmp_path, "cecil", origin="example.org/other")


def test_keys_that_are_there_are_kept_or_named(tmp_path: Path) -> None:
    make_keys(tmp_path, "signer")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with refused(UsageError, file=tmp_path / "signer.pem"):
        make_keys(tmp_path, "signer")
    make_keys(tmp_path, "signer", if_none=True)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("log", "ann.next"):
        with refused(UsageError, key="--name"):
            make_keys(tmp_path, name)


def test_a_rotated_key_signs_no_more_and_what_it_signed_counts(tmp_path: Path) -> None:
    there = keys_in(tmp_path)
    old = find_key(there.trust, "signer")
    fresh = rotate_key(tmp_path, "signer", overlap=DAY)
    old_now = find_key(there.trust, old.id)
    assert old_now.valid_until == fresh.valid_from + DAY
    assert fresh.id != old.id
    assert key_id(public_pem(there.signer())) == fresh.id == key_id((tmp_path / "signer.pub").read_text())
    assert not may_sign(old_now, now() + 2 * DAY)
    assert not list(tmp_path.glob("*.next.*"))
    with refused(UsageError, match="no holder", value="eve"):
        rotate_key(tmp_path, "eve", overlap=DAY)


def test_a_revoked_key_keeps_its_reason_and_the_logs_size(tmp_path: Path) -> None:
    there = keys_in(tmp_path)
    revoked = revoke_key(tmp_path / "trust.json", "signer", "the laptop was stolen", 7)
    assert find_key(there.trust, revoked.id).revoked == revoked.revoked
    assert revoked.revoked and (revoked.revoked.reason, revoked.revoked.log_size) == ("the laptop was stolen", 7)
    with refused(UsageError, match="revoked already"):
        revoke_key(tmp_path / "trust.json", revoked.id, "again", None)
    fresh = rotate_key(tmp_path, "signer", overlap=DAY)
    assert find_key(there.trust, "signer") == fresh


def test_keys_of_others_and_the_threshold(tmp_path: Path) -> None:
    keys_in(tmp_path / "here")
    other = keys_in(tmp_path / "there", "bob")
    file = tmp_path / "here" / "trust.json"
    with refused(UsageError, match="2 holders must sign"):
        set_threshold(file, 2)
    added = add_key(file, public_pem(other.signer("bob")), "bob", "certificate")
    assert set_threshold(file, 2).threshold == read_trust(file).threshold == 2
    assert find_key(read_trust(file), "bob") == added
    with refused(UsageError, match="in the trust file already"):
        add_key(file, public_pem(other.signer("bob")), "bob", "certificate")


def _killed_at_write(number: int, run: Callable[[], object]) -> bool:
    """Run in a process that is killed before its `number`-th write of a file; return whether it came that far."""

    def start() -> None:
        left = [number]

        def dying(write: Callable[..., object]) -> Callable[..., object]:
            def wrapped(*arguments: object, **options: object) -> object:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return write(*arguments, **options)

            return wrapped

        for module, name in ((keys, "write_file"), (keys, "write_trust"), (os, "link")):
            setattr(module, name, dying(getattr(module, name)))
        Path.replace = dying(Path.replace)  # type: ignore[assignment,method-assign]
        run()

    process = multiprocessing.get_context("fork").Process(target=start)
    process.start()
    process.join(60)
    return process.exitcode == -signal.SIGKILL


def _whole(folder: Path) -> None:
    there = Keys(folder)
    for name in ("signer", "log"):
        identity = key_id(public_pem(there.signer(name)))
        assert may_sign(find_key(there.trust, identity), now())
        assert key_id((folder / f"{name}.pub").read_text()) == identity
    assert not [path.name for path in folder.iterdir() if "partial" in path.name or ".next." in path.name]


@pytest.mark.slow
def test_killed_at_any_write_and_run_again(tmp_path: Path) -> None:
    deaths = 0
    for number in range(1, 20):
        made, rotated = tmp_path / f"made-{number}", tmp_path / f"rotated-{number}"
        killed = _killed_at_write(number, lambda made=made: make_keys(made, "signer"))  # type: ignore[misc]
        if killed:
            make_keys(made, "signer")
            _whole(made)
        keys_in(rotated)
        dead = _killed_at_write(number, lambda rotated=rotated: rotate_key(rotated, "signer", overlap=DAY))  # type: ignore[misc]
        if dead:
            rotate_key(rotated, "signer", overlap=DAY)
            _whole(rotated)
        deaths += killed + dead
        if not killed and not dead:
            break
    assert deaths >= 8

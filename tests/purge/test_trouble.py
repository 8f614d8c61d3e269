"""A purge that is killed, one that is not allowed everything, and one that comes when much is gone already."""

import ctypes
import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mbd.certificate.registry import entry
from mbd.certificate.statement import PurgeStatement
from mbd.certificate.trust import now
from mbd.cli import main
from mbd.purge.tombstones import bury
from mbd.steps import purge
from mbd.storage import open_store
from tests.certificate.killing import KillingStore
from tests.purge.estate import Estate, holding


def in_another_process(run: Callable[[], object]) -> int:
    """Run something in a process of its own; return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def killed_after_removals(count: int, run: Callable[[], object]) -> int:
    """Run something that is killed when it has removed so many files."""

    def start() -> None:
        unlink, left = Path.unlink, count

        def counted(path: Path, *arguments: Any, **options: Any) -> None:
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            unlink(path, *arguments, **options)

        setattr(Path, "unlink", counted)  # noqa: B010 -- in this process only
        run()

    return in_another_process(start)


def killed_at_operation(number: int, run: Callable[[], object]) -> int:
    """Run something that is killed at an operation of its store."""

    def start() -> None:
        left = KillingStore(open_store("file://nowhere"), number, "before")

        def opened(url: str, settings: Any = None) -> Any:
            left._store = open_store(url, settings)
            return left

        setattr(purge, "open_store", opened)  # noqa: B010 -- in this process only
        run()

    return in_another_process(start)


def check_complete(estate: Estate) -> None:
    """The purge runs again, completes, and the store is in order."""
    done = estate.purge()
    assert done.record.erasure.claim == "complete"
    assert holding([estate.old_weights()], estate.work, estate.folder / "remote", estate.folder / "machine") == []
    about = entry(estate.office.store, estate.certificate, estate.office.trust, now()).about
    assert about
    assert all(isinstance(said, PurgeStatement) for said in about)


@pytest.mark.parametrize("removals", [0, 1, 3])
def test_killed_while_it_removes_it_completes_when_run_again(estate: Estate, removals: int) -> None:
    assert killed_after_removals(removals, estate.purge) == -signal.SIGKILL
    assert holding([estate.old_weights()], estate.work, estate.folder / "remote", estate.folder / "machine")
    check_complete(estate)


def test_killed_at_any_operation_of_the_store_too(estate: Estate) -> None:
    killed = 0
    for operation in range(1, 200, 9):
        if killed_at_operation(operation, estate.purge) != -signal.SIGKILL:
            break
        killed += 1
    else:
        pytest.fail("it has more operations than were tried")
    assert killed > 3
    check_complete(estate)


def test_what_the_first_run_knew_the_next_one_knows_from_the_tombstones(estate: Estate) -> None:
    bury(estate.office.store, estate.plan().purged.targets, estate.certificate)
    shutil.rmtree(estate.work / "build")
    shutil.rmtree(estate.work / ".git")
    shutil.rmtree(estate.folder / "machine" / "tmp" / "mbd-request-killed")
    estate.repository.git("init", "--quiet")
    done = estate.purge()
    assert {place.kind: place.removed for place in done.record.places if place.found} == {
        "DVC cache": 1,
        "DVC remote": 1,
    }
    assert done.record.erasure.claim == "complete"


def give_up_the_rights_of_root() -> None:
    """Let permissions of files count for this process, whoever runs it."""
    libc = ctypes.CDLL(None, use_errno=True)
    version_3, nothing = 0x20080522, (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(version_3, 0)
    assert libc.capset(header, nothing) == 0


def test_without_permission_on_one_remote_all_else_is_done_and_the_proof_says_so(
    estate: Estate, tmp_path: Path
) -> None:
    (copy,) = holding([estate.old_weights()], estate.folder / "remote")
    copy.parent.chmod(0o555)

    def run() -> None:
        give_up_the_rights_of_root()
        os.chdir(estate.work)
        sys.argv = ["mbd", *estate.command("--receipt", estate.receipt, "--yes")]
        main()

    try:
        assert in_another_process(run) == 1
    finally:
        copy.parent.chmod(0o755)
    assert holding([estate.old_weights()], estate.work, estate.folder / "remote") == [copy]
    verdict = estate.office.verify_in_store(estate.certificate, tmp_path / "verified")
    assert verdict.verified
    assert verdict.claims["erasure"]["claim"] == "partial"
    assert "DVC remote (a file could not be removed)" in verdict.claims["erasure"]["note"]
    check_complete(estate)
    verdict = estate.office.verify_in_store(estate.certificate, tmp_path / "again")
    assert verdict.claims["erasure"]["claim"] == "complete"

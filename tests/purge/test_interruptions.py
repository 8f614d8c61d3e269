"""A purge that is killed, lacks permissions, or runs when most copies are already gone."""

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

from mbd.cli import main
from mbd.formats.statement import PurgeStatement
from mbd.history.entries import read_entry
from mbd.history.tombstones import begin
from mbd.records import now
from mbd.steps import publish, purge
from mbd.storage import open_store
from tests.certificate.killing import KillingStore
from tests.purge.workspace import PurgeWorkspace, holding


def in_another_process(run: Callable[[], object]) -> int:
    """Run a function in a new process; return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def killed_after_removals(count: int, run: Callable[[], object]) -> int:
    """Run a function that is killed after it has removed this many files."""

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
    """Run a function that is killed at an operation of its store."""

    def start() -> None:
        left = KillingStore(open_store("file://nowhere"), number, "before")

        def opened(url: str, settings: Any = None) -> Any:
            left._store = open_store(url, settings)
            return left

        for module in (purge, publish):
            setattr(module, "open_store", opened)  # noqa: B010 -- in this process only
        run()

    return in_another_process(start)


def check_complete(purge_workspace: PurgeWorkspace) -> None:
    """The purge runs again, completes, and the store is in order."""
    done = purge_workspace.purge()
    assert done.record.erasure.claim == "complete"
    assert (
        holding(
            [purge_workspace.old_weights()],
            purge_workspace.work,
            purge_workspace.folder / "remote",
            purge_workspace.folder / "machine",
        )
        == []
    )
    about = read_entry(
        purge_workspace.authority.store, purge_workspace.certificate, purge_workspace.authority.trust, now()
    ).about
    assert about
    assert all(isinstance(said, PurgeStatement) for said in about)


@pytest.mark.slow
@pytest.mark.parametrize("removals", [0, 1, 3])
def test_a_purge_killed_while_removing_completes_when_run_again(purge_workspace: PurgeWorkspace, removals: int) -> None:
    assert killed_after_removals(removals, purge_workspace.purge) == -signal.SIGKILL
    assert holding(
        [purge_workspace.old_weights()],
        purge_workspace.work,
        purge_workspace.folder / "remote",
        purge_workspace.folder / "machine",
    )
    check_complete(purge_workspace)


def test_a_purge_killed_at_any_store_operation_completes_when_run_again(purge_workspace: PurgeWorkspace) -> None:
    killed = 0
    for operation in range(1, 200, 9):
        if killed_at_operation(operation, purge_workspace.purge) != -signal.SIGKILL:
            break
        killed += 1
    else:
        pytest.fail("it has more operations than were tried")
    assert killed > 3
    check_complete(purge_workspace)


def test_a_second_run_knows_the_targets_of_the_first(purge_workspace: PurgeWorkspace) -> None:
    begin(purge_workspace.params(), purge_workspace.certificate, purge_workspace.plan().purged.targets)
    shutil.rmtree(purge_workspace.work / "build")
    shutil.rmtree(purge_workspace.work / ".git")
    shutil.rmtree(purge_workspace.folder / "machine" / "tmp" / "mbd-request-killed")
    purge_workspace.repository.git("init", "--quiet")
    done = purge_workspace.purge()
    assert {place.kind: place.removed for place in done.record.places if place.found} == {
        "DVC cache": 1,
        "DVC remote": 1,
    }
    assert done.record.erasure.claim == "complete"


def give_up_the_rights_of_root() -> None:
    """Make file permissions apply to this process, even if it runs as root."""
    libc = ctypes.CDLL(None, use_errno=True)
    version_3, nothing = 0x20080522, (ctypes.c_uint32 * 6)()
    header = (ctypes.c_uint32 * 2)(version_3, 0)
    assert libc.capset(header, nothing) == 0


def test_a_remote_without_permission_is_in_the_proof_and_the_rest_is_purged(
    purge_workspace: PurgeWorkspace, tmp_path: Path
) -> None:
    (copy,) = holding([purge_workspace.old_weights()], purge_workspace.folder / "remote")
    copy.parent.chmod(0o555)

    def run() -> None:
        give_up_the_rights_of_root()
        os.chdir(purge_workspace.work)
        sys.argv = ["mbd", *purge_workspace.command("--receipt", purge_workspace.receipt, "--yes")]
        main()

    try:
        assert in_another_process(run) == 1
    finally:
        copy.parent.chmod(0o755)
    assert holding([purge_workspace.old_weights()], purge_workspace.work, purge_workspace.folder / "remote") == [copy]
    verdict = purge_workspace.authority.verify_in_store(purge_workspace.certificate, tmp_path / "verified")
    assert verdict.verified
    assert verdict.claims["erasure"]["claim"] == "partial"
    assert "DVC remote (a file could not be removed)" in verdict.claims["erasure"]["note"]
    check_complete(purge_workspace)
    verdict = purge_workspace.authority.verify_in_store(purge_workspace.certificate, tmp_path / "again")
    assert verdict.claims["erasure"]["claim"] == "complete"

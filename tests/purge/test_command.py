"""`mbd purge` as a user runs it."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.errors import DataError, UsageError
from mbd.steps.purge import IncompletePurgeError
from tests.certificate.build import ModelWorkspace
from tests.purge.workspace import PurgeWorkspace, digests_below, holding


def run(purge_workspace: PurgeWorkspace, *arguments: str | Path, answer: str | None = None) -> tuple[int, str]:
    here = Path.cwd()
    os.chdir(purge_workspace.work)
    try:
        done = CliRunner().invoke(group, purge_workspace.command(*arguments), input=answer)
    finally:
        os.chdir(here)
    if isinstance(done.exception, IncompletePurgeError):
        return done.exception.exit_code, done.output
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_a_dry_run_lists_every_copy_and_removes_none(purge_workspace: PurgeWorkspace) -> None:
    before = digests_below(
        purge_workspace.work / "build", purge_workspace.folder / "remote", purge_workspace.authority.folder
    )
    code, text = run(purge_workspace, "--receipt", purge_workspace.receipt, "--dry-run")
    assert code == 0
    for path in holding([purge_workspace.old_weights()], purge_workspace.work, purge_workspace.folder / "remote"):
        assert str(path) in text
    assert "refs/tags/v1" in text
    assert (
        digests_below(
            purge_workspace.work / "build", purge_workspace.folder / "remote", purge_workspace.authority.folder
        )
        == before
    )


def test_nothing_is_removed_without_confirmation(purge_workspace: PurgeWorkspace) -> None:
    code, _ = run(purge_workspace, "--receipt", purge_workspace.receipt, answer="n\n")
    assert code == 1
    assert len(holding([purge_workspace.old_weights()], purge_workspace.work)) == 3
    code, text = run(
        purge_workspace, "--receipt", purge_workspace.receipt, "--out", purge_workspace.folder / "proof", answer="y\n"
    )
    assert code == 0
    assert "erasure: complete" in text
    assert holding([purge_workspace.old_weights()], purge_workspace.work) == []
    assert (purge_workspace.folder / "proof" / "purge.json").is_file()
    assert run(purge_workspace, "scan")[0] == 0


def test_a_missing_receipt_is_a_usage_error(purge_workspace: PurgeWorkspace) -> None:
    assert run(purge_workspace)[0] == 2


def test_places_in_the_parameters_are_searched_and_unsearchable_ones_are_reported(
    purge_workspace: PurgeWorkspace, tmp_path: Path
) -> None:
    registry = tmp_path / "registry" / "v7"
    registry.mkdir(parents=True)
    (registry / "exported.bin").write_bytes(
        (purge_workspace.work / "build" / "model" / "model.safetensors").read_bytes()
    )
    named = ("--set", f"purge.folders=['{tmp_path}/registry', 'gs://bucket/models']")
    code, text = run(purge_workspace, "--receipt", purge_workspace.receipt, "--yes", *named)
    assert code == 1
    assert not (registry / "exported.bin").exists()
    assert "gs://bucket/models: only folders and stores can be searched" in text
    assert "erasure: partial" in text


def test_digests_that_a_certificate_does_not_disclose_come_from_the_deletion_or_the_private_file(
    model_workspace: ModelWorkspace, tmp_path: Path, alone: dict[str, str]
) -> None:
    purge_workspace = PurgeWorkspace.make(model_workspace, tmp_path, {}, kind="exact", environment=alone)
    planned = purge_workspace.plan()
    assert [target.sha256 for target in planned.purged.targets] == [purge_workspace.old_weights()]
    (private,) = (purge_workspace.authority.folder / "private").iterdir()
    private.unlink()
    with pytest.raises(UsageError, match="only commitments"):
        purge_workspace.plan()
    with pytest.raises(DataError, match="does not belong to this certificate"):
        purge_workspace.plan(deletion=model_workspace.deletion("surgery"))
    done = purge_workspace.purge(deletion=model_workspace.deletion("exact"))
    assert done.record.erasure.claim == "complete"
    assert holding([purge_workspace.old_weights()], purge_workspace.work) == []

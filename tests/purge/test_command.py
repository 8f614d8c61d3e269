"""`mbd purge` as a user runs it."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from mbd.cli import group
from mbd.errors import DataError, UsageError
from tests.certificate.build import Home
from tests.purge.estate import Estate, digests_below, holding


def run(estate: Estate, *arguments: str | Path, answer: str | None = None) -> tuple[int, str]:
    here = Path.cwd()
    os.chdir(estate.work)
    try:
        done = CliRunner().invoke(group, estate.command(*arguments), input=answer)
    finally:
        os.chdir(here)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_a_dry_run_lists_every_copy_and_removes_none(estate: Estate) -> None:
    before = digests_below(estate.work / "build", estate.folder / "remote", estate.office.folder)
    code, text = run(estate, "--receipt", estate.receipt, "--dry-run")
    assert code == 0
    for path in holding([estate.old_weights()], estate.work, estate.folder / "remote"):
        assert str(path) in text
    assert "refs/tags/v1" in text
    assert digests_below(estate.work / "build", estate.folder / "remote", estate.office.folder) == before


def test_nothing_is_removed_before_somebody_says_yes(estate: Estate) -> None:
    code, _ = run(estate, "--receipt", estate.receipt, answer="n\n")
    assert code == 1
    assert len(holding([estate.old_weights()], estate.work)) == 3
    code, text = run(estate, "--receipt", estate.receipt, "--out", estate.folder / "proof", answer="y\n")
    assert code == 0
    assert "erasure: complete" in text
    assert holding([estate.old_weights()], estate.work) == []
    assert (estate.folder / "proof" / "purge.json").is_file()
    assert run(estate, "scan")[0] == 0


def test_without_a_receipt_it_is_wrong_usage(estate: Estate) -> None:
    assert run(estate)[0] == 2


def test_a_place_named_in_the_parameters_is_searched_and_one_nobody_can_search_is_told(
    estate: Estate, tmp_path: Path
) -> None:
    registry = tmp_path / "registry" / "v7"
    registry.mkdir(parents=True)
    (registry / "exported.bin").write_bytes((estate.work / "build" / "model" / "model.safetensors").read_bytes())
    named = ("--set", f"purge.folders=['{tmp_path}/registry', 'gs://bucket/models']")
    code, text = run(estate, "--receipt", estate.receipt, "--yes", *named)
    assert code == 1
    assert not (registry / "exported.bin").exists()
    assert "gs://bucket/models: only folders and S3 can be searched" in text
    assert "erasure: partial" in text


def test_where_a_certificate_hides_the_old_digests_they_come_from_elsewhere(
    home: Home, tmp_path: Path, alone: dict[str, str]
) -> None:
    estate = Estate.make(home, tmp_path, {}, kind="exact", environment=alone)
    planned = estate.plan()
    assert [target.sha256 for target in planned.purged.targets] == [estate.old_weights()]
    (private,) = (estate.office.folder / "private").iterdir()
    private.unlink()
    with pytest.raises(UsageError, match="only commitments"):
        estate.plan()
    with pytest.raises(DataError, match="not the deletion that the receipt is about"):
        estate.plan(deletion=home.deletion("surgery"))
    done = estate.purge(deletion=home.deletion("exact"))
    assert done.record.erasure.claim == "complete"
    assert holding([estate.old_weights()], estate.work) == []

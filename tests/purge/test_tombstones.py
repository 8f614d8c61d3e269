"""Purged files do not reappear: steps refuse them, a scan finds them, the hook prevents a push."""

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from mbd import tombstones
from mbd.errors import DataError
from mbd.features.contract import FeatureSet
from mbd.files import sha256_file, write_file
from mbd.formats.files import WEIGHTS
from mbd.history.tombstones import store_tombstones
from mbd.model.checkpoint import load_model
from mbd.model.compatible import open_for
from mbd.outputs import step_run
from mbd.params import Params
from mbd.purge.contents import Targets
from mbd.purge.hook import check_push, install_hook
from mbd.steps import purge
from mbd.steps.step import purged_digests
from tests.certificate.build import ModelWorkspace
from tests.integration.command import mbd
from tests.purge.workspace import PurgeWorkspace, holding
from tests.refusals import refused


def tombstones_of(purge_workspace: PurgeWorkspace) -> Targets:
    return Targets(store_tombstones(purge_workspace.params(), purge_workspace.authority.url))


def use(params: Params) -> AbstractContextManager[None]:
    return tombstones.used(lambda: purged_digests(params))


def test_steps_refuse_purged_files_by_a_local_list_and_by_the_store(
    purge_workspace: PurgeWorkspace, model_workspace: ModelWorkspace
) -> None:
    done = purge_workspace.purge("purge.features=true")
    audio, weights = purge_workspace.audio_files(), model_workspace.folder / "model" / WEIGHTS
    assert tombstones.read_digests(purge_workspace.folder / "tombstones") == {
        target.sha256 for target in done.record.targets
    }
    for params in (
        purge_workspace.params(),
        purge_workspace.params(f"purge.tombstones={purge_workspace.authority.url}"),
    ):
        with use(params):
            with refused(DataError, value=f"sha256 {sha256_file(weights)}"):
                load_model(weights.parent)
            with pytest.raises(DataError) as caught:
                FeatureSet.open(model_workspace.folder / "data").split("train")
            assert str(caught.value.value).removeprefix("sha256 ") in audio
            record, _ = load_model(model_workspace.deletion("surgery"))
            assert len(open_for(record, model_workspace.folder / "data").split("train")) > 0
            without = FeatureSet.open(model_workspace.folder / "data", without=("audio",))
            assert without.split("test").load().features.keys() == {"text", "visual"}
    load_model(model_workspace.folder / "model")


def test_no_step_reads_or_writes_a_purged_file(model_workspace: ModelWorkspace, tmp_path: Path) -> None:
    weights = model_workspace.folder / "model" / WEIGHTS
    digest = sha256_file(weights)
    write_file(tmp_path / "list", f"{digest}\n")
    params, purged = (
        model_workspace.params(f"purge.tombstones={tmp_path / 'list'}"),
        refused(DataError, value=f"sha256 {digest}"),
    )
    with use(params), purged, step_run("some", tmp_path / "a", {}, model=weights.parent):
        raise AssertionError("it should not begin")
    with use(params), purged, step_run("some", tmp_path / "b", {}) as step:
        shutil.copyfile(weights, step.folder / "renamed.bin")
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()


def test_without_a_list_nothing_is_refused_and_the_list_is_read_once(
    model_workspace: ModelWorkspace, tmp_path: Path
) -> None:
    with use(model_workspace.params(f"purge.tombstones={tmp_path / 'nothing'}")):
        load_model(model_workspace.folder / "model")
    reads = []
    with tombstones.used(lambda: frozenset(reads.append("read") or ())):  # type: ignore[func-returns-value]
        for _ in range(3):
            load_model(model_workspace.folder / "model")
    assert reads == ["read"]


def test_tombstones_of_all_purges_are_joined_and_hold_both_digests(purge_workspace: PurgeWorkspace) -> None:
    purge_workspace.purge()
    purge_workspace.purge("purge.features=true")
    found = {t.sha256: (t.what, t.md5 is not None) for t in tombstones_of(purge_workspace)}
    weights = {purge_workspace.old_weights(): ("weights", True)}
    assert found == weights | dict.fromkeys(purge_workspace.audio_files(), ("features", True)) | {
        digest: facts for digest, facts in found.items() if facts[0] == "snapshot"
    }


@pytest.mark.slow
def test_a_clone_cannot_push_purged_files_and_a_scan_finds_forced_ones(purge_workspace: PurgeWorkspace) -> None:
    bare = purge_workspace.folder / "origin.git"
    stale = purge_workspace.clone()
    purge_workspace.repository.git("clone", "--quiet", "--bare", ".", str(bare))
    stale.git("remote", "set-url", "origin", str(bare))
    stale.git("commit", "--quiet", "--allow-empty", "--message", "work on the old model")
    install_hook(stale.folder, purge_workspace.authority.url, purge_workspace.authority.trust_file)
    purge_workspace.purge()
    assert purge.scan(purge_workspace.params(), purge_workspace.authority.url, root=purge_workspace.work).clean

    with pytest.raises(AssertionError, match="would publish purged files again: the DVC cache holds 1"):
        stale.git("push", "--quiet", "origin", "main")
    shutil.copytree(
        stale.folder / ".dvc" / "cache" / "files", purge_workspace.folder / "remote" / "files", dirs_exist_ok=True
    )
    done = mbd(*purge_workspace.command("scan", "--json"), environment=stale.environment, folder=purge_workspace.work)
    assert done.returncode == 1
    (found,) = json.loads(done.stdout)["resurrections"]
    assert (found["kind"], found["what"], found["sha256"]) == ("DVC remote", "weights", purge_workspace.old_weights())

    scan = purge.remove_resurrections(
        purge_workspace.params(), purge_workspace.authority.url, root=purge_workspace.work
    )
    assert scan.clean
    assert holding([purge_workspace.old_weights()], purge_workspace.folder / "remote") == []
    assert (
        purge.remove_resurrections(
            purge_workspace.params(), purge_workspace.authority.url, root=stale.folder
        ).resurrections
        == ()
    )
    stale.git("push", "--quiet", "origin", "main")


def test_a_commit_that_contains_a_purged_file_cannot_be_pushed(purge_workspace: PurgeWorkspace) -> None:
    purge_workspace.purge()
    push = f"refs/heads/main {purge_workspace.repository.git('rev-parse', 'HEAD').strip()} refs/heads/main {'0' * 40}"
    stones = tombstones_of(purge_workspace)
    check_push(purge_workspace.work, stones, [push])
    shutil.copyfile(
        purge_workspace.authority.model_workspace.folder / "model" / WEIGHTS, purge_workspace.work / "model.bin"
    )
    purge_workspace.repository.git("add", "--force", "model.bin")
    purge_workspace.repository.git("commit", "--quiet", "--message", "back again")
    push = f"refs/heads/main {purge_workspace.repository.git('rev-parse', 'HEAD').strip()} refs/heads/main {'0' * 40}"
    with pytest.raises(DataError, match="a pushed commit contains one"):
        check_push(purge_workspace.work, stones, [push])


def test_an_existing_hook_runs_afterwards_with_the_same_input(purge_workspace: PurgeWorkspace) -> None:
    bare, seen = purge_workspace.folder / "origin.git", purge_workspace.folder / "seen"
    purge_workspace.repository.git("init", "--quiet", "--bare", str(bare))
    hooks = purge_workspace.work / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    write_file(hooks / "pre-push", f'#!/bin/sh\n{{ echo "$1"; cat; }} > {seen}\n', mode=0o755)
    for _ in range(2):
        install_hook(purge_workspace.work, purge_workspace.authority.url, purge_workspace.authority.trust_file)
    purge_workspace.repository.git("push", "--quiet", str(bare), "main")
    remote, line = seen.read_text().splitlines()
    assert remote == str(bare)
    assert line.startswith("refs/heads/main ")

"""Files that revisions track: locks and .dvc files of all references, and the digests in the records beside them."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mbd.formats.purge import Target
from mbd.purge.contents import Targets
from mbd.purge.discovery import needed_by_others
from mbd.purge.history import GitHistory, is_pointer
from mbd.purge.workspace import Workspace
from tests.features.dvc_repository import SampleRepository

WEIGHTS, FEATURES = "a" * 64, "b" * 64
_LOCK = """schema: '2.0'
stages:
  train:
    cmd: mbd train
    deps:
    - {{path: build/features/splits, hash: md5, md5: {folder}.dir, size: 9, nfiles: 1}}
    outs:
    - {{path: build/model/model.safetensors, hash: md5, md5: {weights}, size: 70}}
    - {{path: build/model/step.json, hash: md5, md5: {step}, size: 5}}
  features:
    cmd: mbd features
    outs:
    - {{path: build/features/splits, hash: md5, md5: {folder}.dir, size: 9, nfiles: 1}}
    - {{path: build/features/manifest.json, hash: md5, md5: {manifest}, size: 5}}
"""
MD5 = {name: digit * 32 for name, digit in zip(("folder", "weights", "step", "manifest", "file"), "01234", strict=True)}
OBJECTS = {
    MD5["step"]: {"outputs": {"files": {"model.safetensors": WEIGHTS}}},
    f"{MD5['folder']}.dir": [{"md5": MD5["file"], "relpath": "train/audio.safetensors"}],
    MD5["manifest"]: {"name": "n", "splits": {"train": {"files": {"splits/train/audio.safetensors": FEATURES}}}},
}


def read(md5: str) -> bytes | None:
    return json.dumps(OBJECTS[md5]).encode() if md5 in OBJECTS else None


@pytest.fixture
def repository(tmp_path: Path, alone: dict[str, str]) -> SampleRepository:
    """Three commits: a tag refers to the old lock, only the reflog to a stash of an earlier one."""
    (tmp_path / "work").mkdir()
    repository = SampleRepository(tmp_path / "work", alone)
    repository.git("init", "--quiet", "--initial-branch=main")
    lock = repository.folder / "dvc.lock"
    lock.write_text(_LOCK.format(**MD5))
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--message", "old")
    repository.git("tag", "old")
    lock.write_text("schema: '2.0'\nstages: {}\n")
    repository.git("commit", "--quiet", "--all", "--message", "new")
    return repository


def test_locks_of_all_revisions_map_digests_to_md5(repository: SampleRepository) -> None:
    history = GitHistory(repository.folder, read)
    targets = Targets(
        [
            Target(sha256=WEIGHTS, what="weights"),
            Target(sha256=FEATURES, what="features"),
            Target(sha256="c" * 64, what="weights"),
        ]
    )
    known = {target.sha256: (target.md5, target.size) for target in history.known(targets)}
    assert known == {WEIGHTS: (MD5["weights"], 70), FEATURES: (MD5["file"], None)}
    named = Targets([Target(sha256=WEIGHTS, what="weights", md5=MD5["weights"], size=70)])
    assert history.refs_naming(named) == ("refs/tags/old",)


def test_stashes_and_commits_in_the_reflog_are_read(repository: SampleRepository) -> None:
    other = repository.folder / "other.dvc"
    for digit in "56":
        other.write_text(f"outs:\n- md5: {digit * 32}\n  size: 3\n  path: other\n")
        repository.git("add", "--all")
        repository.git("stash", "push", "--quiet")
    history = GitHistory(repository.folder, read)
    named = {tracked.md5 for pointer in history.pointers.values() for tracked in pointer}
    assert {"5" * 32, "6" * 32} <= named
    assert not other.exists()


def test_a_folder_without_git_has_the_pointers_in_its_files(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "model.dvc").write_text(f"outs:\n- md5: {MD5['weights']}\n  size: 3\n  path: model\n")
    history = GitHistory(tmp_path / "data", read)
    assert not history.in_git
    ((pointer),) = history.pointers.values()
    assert [(tracked.path, tracked.md5) for tracked in pointer] == [("model", MD5["weights"])]


def test_pointers_of_cloud_versioned_folders_list_their_files(tmp_path: Path) -> None:
    text = f"outs:\n- path: model\n  hash: md5\n  files:\n  - relpath: a.bin\n    md5: {MD5['file']}\n    size: 4\n"
    (tmp_path / "model.dvc").write_text(text)
    (pointer,) = GitHistory(tmp_path, read).pointers.values()
    assert [(tracked.path, tracked.md5, tracked.size) for tracked in pointer] == [("model/a.bin", "4" * 32, 4)]


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"outs: 3", b"- a", b"stages:\n  a: b\n", b"outs:\n- path: x\n"])
def test_files_that_are_not_valid_pointers_are_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "dvc.lock").write_bytes(content)
    tracked = [t for p in GitHistory(tmp_path, read).pointers.values() for t in p]
    assert all(not one.md5 for one in tracked)


def test_pointers_are_recognised_by_name() -> None:
    assert is_pointer("dvc.lock")
    assert is_pointer("a/b c/model.safetensors.dvc")
    assert not is_pointer(".dvc")
    assert not is_pointer("a/dvc.lock.txt")


digests = st.integers(0, 99).map(lambda number: f"{number:064x}")
md5s = st.integers(0, 99).map(lambda number: f"{number:032x}")


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(digests, st.none() | md5s, st.none() | st.integers(0, 9)), max_size=12))
def test_targets_are_found_by_every_known_property(facts: list[tuple[str, str | None, int | None]]) -> None:
    targets = Targets(Target(sha256=sha256, what="weights", md5=md5, size=size) for sha256, md5, size in facts)
    assert {target.sha256 for target in targets} == {sha256 for sha256, _, _ in facts}
    for sha256, _, size in facts:
        found = targets.by_sha256(sha256)
        assert found is not None
        assert found.size is None or targets.may_be(found.size)
        assert (found.md5 is None) == all(md5 is None for other, md5, _ in facts if other == sha256)
        assert (found.size is not None) or size is None
        if found.md5:
            assert targets.by_md5(found.md5) is not None
    assert len(targets.without(sha256 for sha256, _, _ in facts)) == 0


def test_a_model_whose_record_has_a_damaged_entry_still_needs_its_other_files(tmp_path: Path) -> None:
    files = {"train/audio.safetensors": ["damaged"], "test/audio.safetensors": FEATURES}
    record = {"sha256": WEIGHTS, "modalities": {"audio": 3}, "revoked": [], "data": {"files": files}}
    targets, nothing = Targets([Target(sha256=FEATURES, what="features")]), Targets()
    folder = Workspace(tmp_path, (), GitHistory(tmp_path, read))
    (needed,) = needed_by_others(targets, nothing, folder, [], [("a certificate", record)])
    assert (needed.sha256, needed.by, needed.where) == (FEATURES, WEIGHTS, "a certificate")

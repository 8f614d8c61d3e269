"""All kinds of places at once, with a plain folder as the DVC remote and without a git remote."""

import json
from pathlib import Path

import pytest

from tests.features.dvc_repository import SampleRepository, isolated
from tests.integration.command import mbd
from tests.purge.workspace import PurgeWorkspace, digests_below, holding


@pytest.fixture
def full(first_estate: PurgeWorkspace, tmp_path: Path, alone: dict[str, str]) -> PurgeWorkspace:
    """An experiment, a tag, two branches, a second clone and a run of kfp, all with old copies."""
    purge_workspace = first_estate.moved_to(tmp_path, alone)
    purge_workspace.experiment()
    purge_workspace.scatter()
    purge_workspace.run_pipeline()
    purge_workspace.repository.dvc("push", "--quiet", "--run-cache")
    purge_workspace.repository.git("clone", "--quiet", ".", str(tmp_path / "clone"))
    SampleRepository(tmp_path / "clone", alone).dvc("pull", "--quiet")
    return purge_workspace


def run(purge_workspace: PurgeWorkspace, *arguments: str | Path, folder: Path | None = None) -> tuple[int, str]:
    environment = purge_workspace.repository.environment
    done = mbd(*purge_workspace.command(*arguments), environment=environment, folder=folder or purge_workspace.work)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def test_no_old_byte_is_left_and_a_forgotten_clone_cannot_push(full: PurgeWorkspace) -> None:
    assert full.repository.git("remote") == ""
    remote, weights = full.folder / "remote", full.old_weights()
    everything = (full.work, remote, full.folder / "machine" / "tmp")
    kinds = {path.relative_to(full.folder).parts[:3] for path in holding([weights], *everything)}
    assert {("work", "build", "kfp"), ("work", "build", "exported"), ("work", ".dvc", "cache")} <= kinds
    assert list((remote / "runs").rglob("*"))
    before = digests_below(*everything)

    code, text = run(full, "--receipt", full.receipt, "--yes")
    assert (code, "erasure: complete" in text) == (0, True), text
    for ref in ("refs/tags/v1", "refs/heads/main", "refs/heads/release", "old-experiment"):
        assert ref in text
    after = digests_below(*everything)
    assert weights not in after.values()
    gone = {path for path, digest in before.items() if after.get(path) != digest and ".dvc/tmp" not in str(path)}
    assert {path for path in gone if before[path] != weights and "runs" not in path.parts} == {
        path for path in gone if ".model.resume" in str(path)
    }
    assert run(full, "scan")[0] == 0

    # Another machine: DVC remembers locally which files a remote has.
    clone = SampleRepository(full.folder / "clone", full.repository.environment | isolated(full.folder / "elsewhere"))
    assert len(holding([weights], clone.folder)) >= 2
    origin = full.folder / "origin.git"
    full.repository.git("clone", "--quiet", "--bare", ".", str(origin))
    clone.git("remote", "set-url", "origin", str(origin))
    assert run(full, "hook", "install", folder=clone.folder)[0] == 0
    (clone.folder / "build" / "model" / "notes.txt").write_text("the old model is a good one\n")
    clone.dvc("add", "--quiet", "build/model")
    clone.git("commit", "--quiet", "--all", "--message", "old work")
    with pytest.raises(AssertionError, match="would publish purged files again"):
        clone.git("push", "--quiet", "origin", "HEAD:refs/heads/old-work")
    clone.git("push", "--quiet", "--no-verify", "origin", "HEAD:refs/heads/old-work")
    clone.dvc("push", "--quiet")
    code, text = run(full, "scan", "--json")
    found = [(one["kind"], one["what"], one["sha256"]) for one in json.loads(text)["resurrections"]]
    assert (code, found) == (1, [("DVC remote", "weights", weights)])

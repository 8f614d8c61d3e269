"""`mbd shred`, and other commands on what it has encrypted."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.errors import DataError, UsageError
from mbd.files import read_json
from mbd.shredding.keys import KeyDestroyedError
from tests.digests import path_digest
from tests.refusals import refused, refused_as_encrypted
from tests.shredding.build import feature_set, model
from tests.training.build import SMALL


class ShredWorkspace:
    """The commands, with keys and temporary files in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = [
            f"--set=shredding.keys={folder}/keys",
            f"--set=shredding.wrapper=file:{folder}/kek",
            f"--set=shredding.temporary={folder}/temporary",
        ]

    def run(self, *arguments: object, given: str | None = None) -> Result:
        result = CliRunner().invoke(group, [*map(str, arguments), *self.settings], input=given)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def destroy(self, *arguments: object, given: str | None = None) -> Result:
        return self.run("shred", "destroy", "--modality=audio", "--reason=request 17", *arguments, given=given)


@pytest.fixture
def workspace(tmp_path: Path) -> ShredWorkspace:
    workspace = ShredWorkspace(tmp_path)
    assert "created" in workspace.run("shred", "keys").output
    return workspace


def test_a_step_reads_encrypted_data_like_plain_data(workspace: ShredWorkspace) -> None:
    features, out = feature_set(workspace.folder / "features"), workspace.folder / "encrypted"
    assert "12 files" in workspace.run("shred", "encrypt", "--features", features, "--out", out).output
    train = ["train", *(f"--set={setting}" for setting in SMALL), "--without=audio", "--features"]
    workspace.run(*train, features, "--out", workspace.folder / "a")
    with refused_as_encrypted():
        workspace.run(*train, out / "features", "--out", workspace.folder / "b")
    workspace.destroy("--yes")
    printed = workspace.run(
        *train, out / "features", "--out", workspace.folder / "b", "--set=shredding.enabled=true"
    ).stderr
    assert "request 17; its files are left out" in printed
    one, other = (read_json(workspace.folder / name / "step.json") for name in "ab")
    assert one["outputs"]["files"]["model.safetensors"] == other["outputs"]["files"]["model.safetensors"]
    assert one["inputs"]["features"]["digest"] == other["inputs"]["features"]["digest"]
    assert not any(file.is_file() for file in (workspace.folder / "temporary").rglob("*"))


def test_from_plain_to_encrypted_and_back_until_the_key_is_gone(workspace: ShredWorkspace) -> None:
    folder = model(workspace.folder / "model")
    digest = path_digest(folder)
    assert "1 files" in workspace.run("shred", "encrypt", "--model", folder, "--replace").output
    assert "was encrypted already" in workspace.run("shred", "encrypt", "--model", folder, "--replace").output
    workspace.run("shred", "decrypt", folder, "--out", workspace.folder / "plain")
    assert path_digest(workspace.folder / "plain") == digest
    assert workspace.destroy(given="n\n").exit_code == 1
    workspace.run("shred", "decrypt", folder, "--out", workspace.folder / "again")
    assert "DESTROYED" in workspace.destroy(given="y\n").output
    with refused(KeyDestroyedError):
        workspace.run("shred", "decrypt", folder, "--out", workspace.folder / "never")


def test_list_shows_existing_and_destroyed_keys(workspace: ShredWorkspace) -> None:
    assert "no data key" in workspace.run("shred", "list").output
    workspace.run("shred", "encrypt", "--model", model(workspace.folder / "model"), "--replace")
    workspace.destroy("--yes")
    lines = workspace.run("shred", "list").output.splitlines()
    assert [("audio" in line, "request 17" in line) for line in lines].count((True, True)) == 1
    assert sum("DESTROYED" in line for line in lines) == 1 and len(lines) == 3
    listed = json.loads(workspace.run("shred", "list", "--json").stdout)
    assert [key["destroyed"] is not None for key in listed["keys"]].count(True) == 1


def test_another_key_wraps_and_the_old_one_is_destroyed(workspace: ShredWorkspace) -> None:
    folder = model(workspace.folder / "model")
    workspace.run("shred", "encrypt", "--model", folder, "--replace")
    with pytest.raises(UsageError, match="--destroy-old"):
        workspace.run("shred", "keys", "--destroy-old")
    shown = workspace.run("shred", "keys", f"--rewrap=file:{workspace.folder}/new", "--destroy-old").output
    assert "3 data keys are wrapped" in shown and not (workspace.folder / "kek").exists()
    workspace.settings[1] = f"--set=shredding.wrapper=file:{workspace.folder}/new"
    workspace.run("shred", "decrypt", folder, "--out", workspace.folder / "plain")


def test_ambiguous_options_are_refused(workspace: ShredWorkspace) -> None:
    first, second = model(workspace.folder / "a" / "model"), model(workspace.folder / "b" / "model")
    for arguments in (
        ["--out", workspace.folder / "x"],
        ["--model", first],
        ["--model", first, "--replace", "--out", "x"],
    ):
        assert workspace.run("shred", "encrypt", *arguments).exit_code == 2
    with refused(UsageError, value="model, model"):
        workspace.run("shred", "encrypt", "--model", first, "--model", second, "--out", workspace.folder / "x")
    with refused(DataError, file=workspace.folder / "keys"):
        workspace.run("shred", "encrypt", "--model", workspace.folder / "keys", "--replace")
    with refused(UsageError, key="--lineage"):
        workspace.destroy("--yes")

"""`mbd shred`, and other commands on what it has encrypted."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mbd.cli import group
from mbd.errors import DataError, UsageError
from mbd.files import path_digest, read_json
from mbd.shredding.keys import KeyDestroyedError
from tests.shredding.build import feature_set, model
from tests.training.build import SMALL


class Desk:
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
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    assert "made" in desk.run("shred", "keys").output
    return desk


def test_a_step_does_not_notice_that_its_data_is_encrypted(desk: Desk) -> None:
    features, out = feature_set(desk.folder / "features"), desk.folder / "encrypted"
    assert "12 files" in desk.run("shred", "encrypt", "--features", features, "--out", out).output
    train = ["train", *(f"--set={setting}" for setting in SMALL), "--without=audio", "--features"]
    desk.run(*train, features, "--out", desk.folder / "a")
    with pytest.raises(UsageError, match="the folder is encrypted"):
        desk.run(*train, out / "features", "--out", desk.folder / "b")
    desk.destroy("--yes")
    told = desk.run(*train, out / "features", "--out", desk.folder / "b", "--set=shredding.enabled=true").stderr
    assert "request 17; its files are left out" in told
    one, other = (read_json(desk.folder / name / "step.json") for name in "ab")
    assert one["outputs"]["files"]["model.safetensors"] == other["outputs"]["files"]["model.safetensors"]
    assert one["inputs"]["features"]["digest"] == other["inputs"]["features"]["digest"]
    assert not any(file.is_file() for file in (desk.folder / "temporary").rglob("*"))


def test_from_plain_to_encrypted_and_back_until_the_key_is_gone(desk: Desk) -> None:
    folder = model(desk.folder / "model")
    digest = path_digest(folder)
    assert "1 files" in desk.run("shred", "encrypt", "--model", folder, "--replace").output
    assert "was encrypted already" in desk.run("shred", "encrypt", "--model", folder, "--replace").output
    desk.run("shred", "decrypt", folder, "--out", desk.folder / "plain")
    assert path_digest(desk.folder / "plain") == digest
    assert desk.destroy(given="n\n").exit_code == 1
    desk.run("shred", "decrypt", folder, "--out", desk.folder / "again")
    assert "DESTROYED" in desk.destroy(given="y\n").output
    with pytest.raises(KeyDestroyedError, match="request 17"):
        desk.run("shred", "decrypt", folder, "--out", desk.folder / "never")


def test_list_tells_what_there_is_and_was(desk: Desk) -> None:
    assert "no data key" in desk.run("shred", "list").output
    desk.run("shred", "encrypt", "--model", model(desk.folder / "model"), "--replace")
    desk.destroy("--yes")
    lines = desk.run("shred", "list").output.splitlines()
    assert [("audio" in line, "request 17" in line) for line in lines].count((True, True)) == 1
    assert sum("DESTROYED" in line for line in lines) == 1 and len(lines) == 3
    listed = json.loads(desk.run("shred", "list", "--json").output)
    assert [key["destroyed"] is not None for key in listed["keys"]].count(True) == 1


def test_another_key_wraps_and_the_old_one_is_destroyed(desk: Desk) -> None:
    folder = model(desk.folder / "model")
    desk.run("shred", "encrypt", "--model", folder, "--replace")
    with pytest.raises(UsageError, match="--destroy-old"):
        desk.run("shred", "keys", "--destroy-old")
    shown = desk.run("shred", "keys", f"--rewrap=file:{desk.folder}/new", "--destroy-old").output
    assert "3 data keys are wrapped" in shown and not (desk.folder / "kek").exists()
    desk.settings[1] = f"--set=shredding.wrapper=file:{desk.folder}/new"
    desk.run("shred", "decrypt", folder, "--out", desk.folder / "plain")


def test_what_is_not_said_clearly_is_refused(desk: Desk) -> None:
    first, second = model(desk.folder / "a" / "model"), model(desk.folder / "b" / "model")
    for arguments in (["--out", desk.folder / "x"], ["--model", first], ["--model", first, "--replace", "--out", "x"]):
        assert desk.run("shred", "encrypt", *arguments).exit_code == 2
    with pytest.raises(UsageError, match="same name"):
        desk.run("shred", "encrypt", "--model", first, "--model", second, "--out", desk.folder / "x")
    with pytest.raises(DataError, match="neither"):
        desk.run("shred", "encrypt", "--model", desk.folder / "keys", "--replace")
    with pytest.raises(UsageError, match="whose keys"):
        desk.destroy("--yes")

"""The private folder: accessible only to its owner, and removed however its process ends."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from mbd.errors import UsageError
from mbd.shredding import private_folder as private_folders
from mbd.shredding.private_folder import private_folder, refuse_without_room, remove_abandoned
from mbd.shredding.vault import encrypt_folder, opened
from tests.refusals import refused
from tests.shredding.build import feature_set, files_with, make_keyring, settings, windows

OPEN = """
import sys, time
from pathlib import Path
from mbd.params.operations import ShreddingSettings
from mbd.shredding.vault import opened
with opened(Path(sys.argv[1]), ShreddingSettings.model_validate_json(sys.argv[2])):
    print("open", flush=True)
    time.sleep(600)
"""


def files_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def test_two_processes_use_separate_folders(tmp_path: Path) -> None:
    with private_folder(str(tmp_path)) as one, private_folder(str(tmp_path)) as other:
        (one / "x").touch()
        remove_abandoned(str(tmp_path))
        assert one.exists() and other.exists() and one != other
    assert not one.exists() and not other.exists()


@pytest.mark.parametrize("moment", ["while decrypting", "while open"])
def test_leftovers_of_a_killed_process_are_removed_by_the_next_run(tmp_path: Path, moment: str) -> None:
    keyring, features = make_keyring(tmp_path), feature_set(tmp_path / "features")
    encrypt_folder(features, tmp_path / "encrypted", keyring)
    secret = windows(features / "splits/train/text.safetensors")
    temporary, params = tmp_path / "temporary", settings(tmp_path)
    arguments = [sys.executable, "-c", OPEN, str(tmp_path / "encrypted"), params.model_dump_json()]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        if moment == "while open":
            assert process.stdout.readline() == "open\n"
        while not any(file.stat().st_size for file in files_in(temporary)):
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    assert files_in(temporary)
    if moment == "while open":
        assert list(files_with(temporary, secret))
    with opened(tmp_path / "encrypted", params) as plain:
        assert set(files_in(temporary)) == set(files_in(plain))
    assert not files_in(temporary)


def test_a_folder_that_others_can_access_is_refused(tmp_path: Path) -> None:
    with private_folder(str(tmp_path)) as folder:
        model_workspace = folder.parent
    model_workspace.chmod(0o755)
    shared = refused(UsageError, match="other users", value=model_workspace)
    with shared, private_folder(str(tmp_path)):
        pass
    model_workspace.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    model_workspace.symlink_to(tmp_path / "elsewhere")
    with shared, private_folder(str(tmp_path)):
        pass


def test_missing_space_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    refuse_without_room(tmp_path, 1)
    with refused(UsageError, match="not enough space"):
        refuse_without_room(tmp_path, 1 << 60)


def test_memory_is_preferred_to_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_folders, "SHARED_MEMORY", tmp_path / "shm")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_folder(None) as folder:
        assert folder.is_relative_to(tmp_path) and not folder.is_relative_to(tmp_path / "shm")
    (tmp_path / "shm").mkdir()
    with private_folder(None) as folder:
        assert folder.is_relative_to(tmp_path / "shm")

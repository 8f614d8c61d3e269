"""What surrounds a step: tombstones, metrics and decryption, for as long as it runs and no longer."""

from pathlib import Path

import pytest

from mbd.errors import DataError
from mbd.files import sha256_file, write_file
from mbd.params import load_params
from mbd.shredding.keys import Keyring
from mbd.shredding.vault import encrypt_folder
from mbd.steps.context import step_context
from mbd.steps.step import step_run
from tests.digests import path_digest
from tests.features.build import synthetic_set
from tests.kubeflow.workspace import as_settings, sealing


def test_a_purged_file_is_refused_within_the_context_only(tmp_path: Path) -> None:
    write_file(tmp_path / "in" / "weights", "purged")
    write_file(tmp_path / "list", f"{sha256_file(tmp_path / 'in' / 'weights')}\n")
    with (
        step_context(load_params(None, [f"purge.tombstones={tmp_path}/list"]), "train"),
        pytest.raises(DataError, match="must not come back"),
        step_run("train", tmp_path / "out", {}, model=tmp_path / "in"),
    ):
        raise AssertionError("it should not begin")
    with step_run("train", tmp_path / "out", {}, model=tmp_path / "in"):
        pass
    assert (tmp_path / "out" / "step.json").is_file()


def test_how_the_command_ended_is_reported(tmp_path: Path) -> None:
    params = load_params(None, ["monitoring.mode=textfile", f"monitoring.textfile={tmp_path}"])
    with step_context(params, "delete"):
        pass
    text = next(tmp_path.glob("*.prom")).read_text()
    assert 'mbd_step_last_success_timestamp_seconds{model="sentiment",step="delete"}' in text


def test_an_encrypted_folder_is_plain_within_the_context_and_gone_afterwards(tmp_path: Path) -> None:
    data, settings = synthetic_set(tmp_path / "data"), sealing(tmp_path)
    encrypt_folder(data, tmp_path / "encrypted", Keyring.of(settings))
    with step_context(load_params(None, as_settings(settings)), "train") as context:
        assert context.plain(data) == data
        plain = context.plain(tmp_path / "encrypted")
        assert path_digest(plain) == path_digest(data)
    assert not plain.exists()

"""What surrounds a step: tombstones, metrics and decryption, for as long as it runs and no longer."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from mbd.errors import DataError
from mbd.files import sha256_file, write_file
from mbd.outputs import step_run
from mbd.params import load_params
from mbd.shredding.keys import Keyring
from mbd.shredding.vault import encrypt_folder
from mbd.steps.step import StepContext, read_folder, reads, step_context
from tests.digests import path_digest
from tests.features.build import synthetic_set
from tests.kubeflow.workspace import as_settings, sealing
from tests.refusals import refused


def test_a_purged_file_is_refused_within_the_context_only(tmp_path: Path) -> None:
    write_file(tmp_path / "in" / "weights", "purged")
    write_file(tmp_path / "list", f"{sha256_file(tmp_path / 'in' / 'weights')}\n")
    with (
        step_context(load_params(None, [f"purge.tombstones={tmp_path}/list"]), "train"),
        refused(DataError, value=f"sha256 {sha256_file(tmp_path / 'in' / 'weights')}"),
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


@reads("models", data="features")
def step(features: Path, models: Sequence[Path] = (), out: Path | None = None) -> tuple[Path, Sequence[Path], object]:
    return features, models, out


def test_a_step_gets_encrypted_folders_that_it_reads_plain_and_no_others(tmp_path: Path) -> None:
    data, settings = synthetic_set(tmp_path / "data"), sealing(tmp_path)
    encrypted = tmp_path / "encrypted"
    encrypt_folder(data, encrypted, Keyring.of(settings))
    with step_context(load_params(None, as_settings(settings)), "train"):
        plain, (unchanged, *more), out = step(encrypted, [data, encrypted], out=encrypted)
        assert [path_digest(folder) for folder in (plain, *more)] == [path_digest(data)] * 2
        assert (unchanged, out) == (data, encrypted)
    assert not plain.exists()
    assert step(encrypted) == (encrypted, (), None)


def test_outputs_of_earlier_steps_are_verified_once_and_data_are_not(tmp_path: Path) -> None:
    verified: list[Path] = []

    def verify(_: StepContext, folder: Path) -> Path:
        verified.append(folder)
        return folder / "plain"

    with step_context(load_params(None), "train", verify=verify):
        _, models, _ = step(tmp_path / "data", [tmp_path / "model"])
        assert step(tmp_path / "data", models)[1] == models == (read_folder(tmp_path / "model"),)
    assert verified == [tmp_path / "model"]


def test_an_input_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught, step_run("evaluate", tmp_path / "out", {}, features=tmp_path / "none"):
        pass
    assert (caught.value.file, caught.value.key) == (tmp_path / "none", "--features")
    assert not (tmp_path / "out").exists()
